//! Lists of keys and values: `key=value` and a null, one after the other (RFC 7143, section 6.1).

/// Most pairs in a list. No login or text request has more.
const MAX_PAIRS: usize = 64;
/// Longest name of a key.
const MAX_KEY: usize = 63;
/// Longest value. Only the values of an authentication come near it.
const MAX_VALUE: usize = 8192;

/// Why bytes are no list of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextError {
    /// A pair without an equals sign, or with a name or a value that is not allowed.
    Pair,
    /// A key that is there twice.
    Twice,
    /// More pairs than any request has.
    TooMany,
}

/// Parses a list. Empty pairs are ignored, and the last pair needs no null.
pub fn parse_text(bytes: &[u8]) -> Result<Vec<(&str, &str)>, TextError> {
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for part in bytes.split(|b| *b == 0).filter(|part| !part.is_empty()) {
        if pairs.len() == MAX_PAIRS {
            return Err(TextError::TooMany);
        }
        let part = std::str::from_utf8(part).map_err(|_| TextError::Pair)?;
        let (key, value) = part.split_once('=').ok_or(TextError::Pair)?;
        if !is_key(key) || value.len() > MAX_VALUE || value.chars().any(char::is_control) {
            return Err(TextError::Pair);
        }
        if pairs.iter().any(|(k, _)| *k == key) {
            return Err(TextError::Twice);
        }
        pairs.push((key, value));
    }
    Ok(pairs)
}

/// Returns whether a text may be the name of a key: a letter, then letters, digits and some signs.
fn is_key(key: &str) -> bool {
    let sign = |c: char| c.is_ascii_alphanumeric() || "-+@_.#".contains(c);
    key.len() <= MAX_KEY
        && key.starts_with(|c: char| c.is_ascii_alphabetic())
        && key.chars().all(sign)
}

/// Encodes a list.
pub fn encode_text<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
    let mut b = Vec::new();
    for (key, value) in pairs {
        b.extend(key.bytes().chain([b'=']).chain(value.bytes()).chain([0]));
    }
    b
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_pairs_are_pairs() {
        let list = b"AuthMethod=CHAP,None\0X-a.b=x=y\0\0";
        assert_eq!(parse_text(list).unwrap(), [("AuthMethod", "CHAP,None"), ("X-a.b", "x=y")]);
        for wrong in [&b"a"[..], b"=b", b"1a=b", b"a b=c", b"a=\x01", b"a=\xff"] {
            assert_eq!(parse_text(wrong), Err(TextError::Pair), "{wrong:?}");
        }
        assert_eq!(parse_text(b"a=1\0a=2\0"), Err(TextError::Twice));
        let many: Vec<u8> = (0..65).flat_map(|i| format!("k{i}=v\0").into_bytes()).collect();
        assert_eq!(parse_text(&many), Err(TextError::TooMany));
    }

    proptest! {
        #[test]
        fn what_is_printed_is_parsed(pairs in prop::collection::btree_map("[A-Za-z][A-Za-z0-9.+@_#-]{0,62}", "[ -~]{0,60}", 0..20)) {
            let bytes = encode_text(pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())));
            let want: Vec<_> = pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            prop_assert_eq!(parse_text(&bytes), Ok(want));
        }

        #[test]
        fn any_bytes_are_a_list_or_not(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(pairs) = parse_text(&bytes) {
                let printed = encode_text(pairs.clone());
                prop_assert_eq!(parse_text(&printed), Ok(pairs));
            }
        }
    }
}
