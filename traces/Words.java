import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Counts words of a text that it makes, sorts them, and drops and makes objects meanwhile. */
public class Words {
    public static void main(String[] arguments) {
        int rounds = Integer.parseInt(arguments[0]);
        Map<String, List<Integer>> places = new HashMap<>();
        long state = 1;
        for (int at = 0; at < rounds; at++) {
            state = state * 6364136223846793005L + 1442695040888963407L;
            String word = "w" + (state >>> 33) % (rounds / 8);
            places.computeIfAbsent(word, key -> new ArrayList<>()).add(at);
        }
        List<String> words = new ArrayList<>(places.keySet());
        Collections.sort(words);
        StringBuilder text = new StringBuilder();
        for (String word : words) {
            text.append(word).append(' ').append(places.get(word).size()).append('\n');
        }
        System.out.println(words.size() + " words, " + text.length() + " characters");
    }
}
