//! lackey's output, imported and read back.

use crate::{one_line, with_file, within};
use trace::Reader;

/// Words to insert.
pub const WORDS: &[&str] =
    &["I", " L", " S", " M", "==1==", "--", ",", "4096", "4097", "0", "ffffffffffffffff", "fff"];

/// Valid inputs to start from.
pub fn seeds() -> Vec<Vec<u8>> {
    let words = "==12== Lackey, an example Valgrind tool
I  04001090,3
 S 1ffeffe78,8
 L 04222cac,8
 M 04222fff,1
I  04001ffe,4
--12-- done
";
    vec![words.into(), " L ffffffffffffffff,1\n S 0,4096\n".into()]
}

/// What importing `len` bytes may use: a full frame, and for each access, which has at least 6 bytes, an
/// entry for a page or two in the table of rights, the mappings, and the footprint.
const fn memory(len: usize) -> usize {
    (4 << 20) + 256 * len
}

/// Import it. The result must be a valid trace.
pub fn feed(input: &[u8]) -> bool {
    with_file("in.lackey", input, |path| {
        let output = path.with_extension("pft");
        match within(memory(input.len()), || trace::import::lackey(path, &output)) {
            Err(error) => {
                one_line(&error);
                false
            }
            Ok(header) => {
                let reader = Reader::open(&output).expect("an imported trace must be readable");
                reader.verify().expect("an imported trace must be valid");
                assert_eq!(reader.header(), &header);
                true
            }
        }
    })
}
