//! JSON of the broker's configuration files (`RemotingSerializable`, by fastjson).
//!
//! A byte order mark and unquoted numbers as keys (`{0:57}`) are accepted. The output has
//! RocketMQ's shape.

use std::borrow::Cow;

use indexmap::IndexMap;
use serde_json::{Map, Value};

use crate::error::{CorruptionKind, FormatError};

pub const MAX_LEN: usize = 64 << 20;
pub const MAX_DEPTH: usize = 64;
/// Maximum number of values: a few hundred thousand topics.
pub const MAX_VALUES: usize = 4 << 20;

const MOST_BARE: usize = 1024;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Parses a configuration file. The last of duplicate keys wins, as in RocketMQ.
pub fn parse(bytes: &[u8]) -> Result<Value, FormatError> {
    parse_by(bytes, |text| serde_json::from_slice(text))
}

/// [`parse`] by a caller's function, which gets strict JSON.
pub fn parse_by<T>(
    bytes: &[u8],
    read: impl FnOnce(&[u8]) -> serde_json::Result<T>,
) -> Result<T, FormatError> {
    let (mark, keys) = within_limits(bytes)?;
    let text = &bytes[mark..];
    let quoted = with_quotes(text, &keys);
    read(&quoted).map_err(|error| {
        let position = position_of(&quoted, error.line(), error.column());
        // Each bare key before it became two bytes longer.
        let added = keys.iter().enumerate().take_while(|(i, key)| key.end + 2 * i < position);
        let position = position.saturating_sub(2 * added.count());
        bad(mark + position, "JSON".into(), error.to_string())
    })
}

/// Whether a table has only its version.
#[must_use]
pub fn is_bare(bytes: &[u8]) -> bool {
    fn is_empty(value: &Value) -> bool {
        value.as_object().map_or(value.is_null(), |fields| fields.values().all(is_empty))
    }
    let root = (bytes.len() <= MOST_BARE).then(|| parse(bytes).ok()).flatten();
    root.is_some_and(|root| {
        root.as_object().is_some_and(|fields| {
            fields.iter().all(|(name, value)| name == "dataVersion" || is_empty(value))
        })
    })
}

/// Checks output against the limits of [`parse`].
pub fn check_limits(bytes: &[u8]) -> Result<(), FormatError> {
    within_limits(bytes).map(drop)
}

/// Returns the length of the byte order mark and the unquoted keys.
fn within_limits(bytes: &[u8]) -> Result<(usize, Vec<BareKey>), FormatError> {
    if bytes.len() > MAX_LEN {
        return Err(bad(0, format!("at most {MAX_LEN} bytes"), format!("{}", bytes.len())));
    }
    let mark = if bytes.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
    let keys = bare_keys(&bytes[mark..]).map_err(|error| error.at(mark))?;
    Ok((mark, keys))
}

/// The file as strict JSON: keys quoted, no byte order mark.
pub fn to_strict(bytes: &[u8]) -> Result<String, FormatError> {
    parse(bytes)?;
    let text = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    let quoted = with_quotes(text, &bare_keys(text)?);
    Ok(String::from_utf8_lossy(&quoted).into_owned())
}

struct BareKey {
    start: usize,
    end: usize,
}

fn bare_keys(text: &[u8]) -> Result<Vec<BareKey>, FormatError> {
    let mut keys = Vec::new();
    // One bit for each open brace or bracket, the innermost lowest: 1 for an object.
    let (mut open, mut depth) = (0_u64, 0_usize);
    let mut values = 0_usize;
    let mut before_key = false;
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let was_before_key = std::mem::replace(&mut before_key, false);
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => before_key = was_before_key,
            b'"' => at = end_of_string(text, at),
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err(bad(at, format!("at most {MAX_DEPTH} levels"), "more".into()));
                }
                before_key = *byte == b'{';
                open = open << 1 | u64::from(before_key);
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                open >>= 1;
            }
            b',' => {
                values += 1;
                if values > MAX_VALUES {
                    return Err(bad(at, format!("at most {MAX_VALUES} values"), "more".into()));
                }
                before_key = open & 1 == 1;
            }
            b'-' | b'0'..=b'9' if was_before_key => {
                let start = at;
                at += 1;
                while text.get(at).is_some_and(u8::is_ascii_digit) {
                    at += 1;
                }
                keys.push(BareKey { start, end: at });
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    Ok(keys)
}

/// Position of the quote that closes the string opened at `start`, or the end.
fn end_of_string(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => return at,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

fn with_quotes<'a>(text: &'a [u8], keys: &[BareKey]) -> Cow<'a, [u8]> {
    if keys.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len() + 2 * keys.len());
    let mut copied = 0;
    for key in keys {
        out.extend_from_slice(&text[copied..key.start]);
        out.push(b'"');
        out.extend_from_slice(&text[key.start..key.end]);
        out.push(b'"');
        copied = key.end;
    }
    out.extend_from_slice(&text[copied..]);
    Cow::Owned(out)
}

fn position_of(text: &[u8], line: usize, column: usize) -> usize {
    let before = text.split_inclusive(|byte| *byte == b'\n').take(line.saturating_sub(1));
    let start: usize = before.map(<[u8]>::len).sum();
    (start + column.saturating_sub(1)).min(text.len())
}

/// Formats `value` as RocketMQ does: indented with tabs, an object of numbers by number on one
/// line, unquoted (`JSON#toJSONString` with `PrettyFormat`).
#[must_use]
pub fn to_text(value: &Value) -> String {
    let mut out = String::new();
    write_value(&mut out, value, 0);
    out
}

/// A field's value, perhaps as text, or an object of texts.
#[derive(Clone, Copy)]
pub enum Field<'a> {
    Value(&'a Value),
    Text(&'a str),
    Texts(&'a IndexMap<Box<str>, Box<str>>),
}

/// The object of these fields, as [`to_text`] writes it.
#[must_use]
pub fn object_to_text(fields: &[(&str, Field<'_>)]) -> String {
    let mut out = String::new();
    write_object(&mut out, &mut fields.iter().copied(), 0);
    out
}

fn write_object<'a>(
    out: &mut String,
    fields: &mut dyn Iterator<Item = (&'a str, Field<'a>)>,
    depth: usize,
) {
    for (i, (key, value)) in fields.enumerate() {
        out.push(if i == 0 { '{' } else { ',' });
        new_line(out, depth + 1);
        write_string(out, key);
        out.push(':');
        match value {
            Field::Value(value) => write_value(out, value, depth + 1),
            Field::Texts(texts) if texts.is_empty() => out.push_str("{}"),
            Field::Texts(texts) => {
                out.reserve(texts.values().map(|text| text.len() * 3 / 2).sum());
                let mut fields = texts.iter().map(|(key, text)| (&**key, Field::Text(text)));
                write_object(out, &mut fields, depth + 1);
            }
            // A value before.
            Field::Text(text) => {
                write_value(out, &serde_json::from_str(text).unwrap_or_default(), depth + 1);
            }
        }
    }
    new_line(out, depth);
    out.push('}');
}

fn write_value(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(map) if map.is_empty() => out.push_str("{}"),
        Value::Object(map) if is_by_number(map) => {
            for (i, (key, value)) in map.iter().enumerate() {
                out.push(if i == 0 { '{' } else { ',' });
                out.push_str(key);
                out.push(':');
                out.push_str(&value.to_string());
            }
            new_line(out, depth);
            out.push('}');
        }
        Value::Object(map) => {
            let mut fields = map.iter().map(|(key, value)| (key.as_str(), Field::Value(value)));
            write_object(out, &mut fields, depth);
        }
        Value::Array(values) => {
            out.push('[');
            for (i, value) in values.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_value(out, value, depth + 1);
            }
            out.push(']');
        }
        Value::String(text) => write_string(out, text),
        Value::Null | Value::Bool(_) | Value::Number(_) => out.push_str(&value.to_string()),
    }
}

fn is_by_number(map: &Map<String, Value>) -> bool {
    map.iter().all(|(key, value)| is_whole_number(key) && value.is_i64())
}

fn is_whole_number(key: &str) -> bool {
    key.parse::<i64>().is_ok_and(|number| number.to_string() == key)
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n('\t', depth));
}

fn write_string(out: &mut String, text: &str) {
    out.push_str(&Value::from(text).to_string());
}

#[cold]
pub(crate) fn bad(position: usize, expected: String, found: String) -> FormatError {
    FormatError::new(CorruptionKind::Json, position, expected, found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bare_keys_are_read_as_text() {
        for text in [
            r#"{"a":{0:57,1:60}}"#,
            "{\"a\": { 0 : 57 ,\n\t1:60}}",
            r#"{"a":{"0":57,1:60}}"#,
            "\u{feff}{\"a\":{0:57,1:60}}",
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap(), json!({"a": {"0": 57, "1": 60}}), "{text}");
        }
        assert_eq!(parse(b"{-1:[1,2,{3:4}]}").unwrap(), json!({"-1": [1, 2, {"3": 4}]}));
        assert_eq!(
            parse(b"{0:{1:2},3:[4],5:6}").unwrap(),
            json!({"0": {"1": 2}, "3": [4], "5": 6})
        );
        let quoted = parse(br#"{"ab":"\",0:1","c":"\"\",0:1",1:{2:3}}"#).unwrap();
        assert_eq!(quoted, json!({"ab": "\",0:1", "c": "\"\",0:1", "1": {"2": 3}}));
    }

    #[test]
    fn strict_text_differs_by_quotes_alone() {
        let text = "\u{feff}{\"b\":{0:1.50,-1:[2]},\n\"a\":18446744073709551616}";
        let strict = "{\"b\":{\"0\":1.50,\"-1\":[2]},\n\"a\":18446744073709551616}";
        assert_eq!(to_strict(text.as_bytes()).unwrap(), strict);
        assert!(to_strict(b"{0:}").is_err());
    }

    #[test]
    fn text_that_only_resembles_a_bare_key_stays() {
        for text in [r#"{"a":"{0:1,2:3}"}"#, r#"{"a\"":"\\","b":[0,1]}"#, "[1,2]", "7", r#""x""#] {
            assert_eq!(
                parse(text.as_bytes()).unwrap(),
                serde_json::from_str::<Value>(text).unwrap()
            );
        }
    }

    #[test]
    fn later_duplicates_win() {
        assert_eq!(parse(br#"{"a":1,0:2,"a":3,"0":4}"#).unwrap(), json!({"a": 3, "0": 4}));
    }

    #[test]
    fn damage_is_placed_in_the_bytes_given() {
        for (text, position) in [
            ("{\"a\":x}", 5),
            ("\u{feff}{\"a\":x}", 8),
            ("{1:2,3:4,5:x}", 11),
            ("{1:2,3:x,5:6}", 7),
            ("{1:2,\n3:4,\n\"a\":x}", 15),
            ("", 0),
            ("{1}", 2),
        ] {
            let error = parse(text.as_bytes()).unwrap_err();
            assert_eq!(error.kind, CorruptionKind::Json);
            assert_eq!(error.position, position, "{text:?}: {}", error.found);
        }
        assert!(parse(b"{\"a\":\"\xFF\"}").is_err());
        assert!(parse(b"{\"a").is_err());
        assert!(parse(b"{\"a\\").is_err());
    }

    #[test]
    fn hk05_limits_end_the_reading() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(nested(64).as_bytes()).is_ok());
        let error = parse(nested(65).as_bytes()).unwrap_err();
        assert_eq!((error.position, error.expected.as_str()), (64, "at most 64 levels"));
        assert!(parse("{\"a\":".repeat(1_000_000).as_bytes()).is_err());
        assert_eq!(parse(&vec![b' '; MAX_LEN + 1]).unwrap_err().position, 0);
        let many = [b"[".to_vec(), b"0,".repeat(MAX_VALUES + 1), b"0]".to_vec()].concat();
        assert!(parse(&many).unwrap_err().expected.contains("values"));
        assert!(bare_keys(&b"0,".repeat(MAX_VALUES)).is_ok());
        assert_eq!(parse(&[vec![b' '; MAX_LEN - 1], b"7".to_vec()].concat()).unwrap(), 7);
    }

    #[test]
    fn numbers_beyond_64_bits_are_no_integers() {
        let value = parse(b"{0:9223372036854775807,1:18446744073709551616,2:-9223372036854775809}");
        let value = value.unwrap();
        assert_eq!(value["0"].as_i64(), Some(i64::MAX));
        assert_eq!((value["1"].as_i64(), value["2"].as_i64()), (None, None));
    }

    #[test]
    fn text_has_the_shape_of_the_broker() {
        let text = concat!(
            "{\n\t\"dataVersion\":{\n\t\t\"counter\":0,\n\t\t\"timestamp\":1795247399796\n\t},\n",
            "\t\"groupTopicMap\":{\n\t\t\"g\":[\"a\",\"b\"]\n\t},\n",
            "\t\"offsetTable\":{\n\t\t\"a@g\":{0:0,1:5,2:-1\n\t\t},\n\t\t\"b@g\":{}\n\t}\n}"
        );
        assert_eq!(to_text(&parse(text.as_bytes()).unwrap()), text);
        assert_eq!(to_text(&json!([[{"a": "b"}]])), "[[{\n\t\t\t\"a\":\"b\"\n\t\t}]]");
    }

    #[test]
    fn only_numbers_by_number_go_without_quotes() {
        for value in [
            json!({"0": "a"}),
            json!({"0": 1, "a": 2}),
            json!({"0": {}}),
            json!({"+1": 1}),
            json!({"01": 1}),
            json!({"-0": 1}),
            json!({"9223372036854775808": 1}),
            json!({"0": 1.5}),
        ] {
            let text = to_text(&value);
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value, "{text}");
        }
        assert_eq!(to_text(&json!({"-1": 2})), "{-1:2\n}");
    }

    #[test]
    fn texts_are_escaped() {
        assert_eq!(to_text(&json!(["a\"\\\n\u{1}é"])), "[\"a\\\"\\\\\\n\\u0001é\"]");
    }
}
