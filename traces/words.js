// Counts words of a text that it makes, sorts them, and goes through JSON with all.
const rounds = Number(process.argv[2]);
const places = new Map();
let state = 1;
for (let at = 0; at < rounds; at++) {
    state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
    const word = `w${(state >> 8) % (rounds >> 3)}`;
    if (!places.has(word)) places.set(word, []);
    places.get(word).push(at);
}
const words = [...places.keys()].sort();
const text = JSON.stringify(words.map((word) => ({ word, at: places.get(word) })));
console.log(`${words.length} words, ${text.length} characters, ${JSON.parse(text).length} read again`);
