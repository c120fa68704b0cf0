//! Shell commands of cures.

use std::path::Path;

use crate::error::quoted;

const MOST_TOPICS: usize = 20;

/// The cure of wrong offsets where the backup has right ones.
pub(super) const TO_BACKUP: &str = "mqstore groups STORE --reset-to backup --apply";

const BROKER_CONF: &str = "broker.conf";

#[derive(Debug, Default)]
pub(super) struct Words<'a> {
    pub(super) topics: Vec<&'a str>,
    /// Whether the command means something else without topics.
    pub(super) needs_topics: bool,
    pub(super) queue_id: i32,
    pub(super) key: &'a str,
    pub(super) time_ms: i64,
    pub(super) out: &'a str,
}

/// Our commands between backticks in a text that drop nothing.
pub(super) fn commands_in(text: &str) -> impl Iterator<Item = &str> {
    let commands = text.split('`').skip(1).step_by(2);
    commands.filter(|text| text.starts_with("mqstore ") && !text.contains("--drop-beyond"))
}

/// Fills in a fix's command. `None` without a required key, or for a word with a control character.
pub(super) fn fill(command: &str, store: &Path, words: &Words<'_>) -> Option<String> {
    let store = store.to_str()?;
    let mut out = Vec::new();
    let mut parts = command.split(' ').peekable();
    while let Some(part) = parts.next() {
        match part {
            "-t" if parts.peek() == Some(&"TOPIC") => {
                parts.next();
                let named = words.topics.len() <= MOST_TOPICS;
                if words.needs_topics && (!named || words.topics.is_empty()) {
                    return None;
                }
                for topic in words.topics.iter().filter(|_| named) {
                    out.extend(["-t".to_owned(), quoted(topic)?]);
                }
            }
            "STORE" => out.push(quoted(store)?),
            "OUT" => out.push(quoted(words.out)?),
            "FILE" => out.push(BROKER_CONF.to_owned()),
            "QUEUE" => out.push(words.queue_id.to_string()),
            "TIME" => out.push(words.time_ms.to_string()),
            "KEY" if words.key.is_empty() => return None,
            "KEY" => out.push(quoted(words.key)?),
            other => out.push(other.to_owned()),
        }
    }
    Some(out.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_filled_in_and_quoted() {
        let topics = vec!["a", "b c"];
        let words = Words {
            topics,
            queue_id: 3,
            key: "it's",
            time_ms: 7,
            out: "/s/x.salvaged",
            ..Words::default()
        };
        for (command, expected) in [
            (
                "mqstore rebuild STORE -t TOPIC --apply",
                "mqstore rebuild /s/x -t a -t 'b c' --apply",
            ),
            (
                "mqstore query STORE -t TOPIC -k KEY",
                r"mqstore query /s/x -t a -t 'b c' -k 'it'\''s'",
            ),
            ("mqstore at STORE -q QUEUE TIME", "mqstore at /s/x -q 3 7"),
            ("mqstore salvage STORE --out OUT", "mqstore salvage /s/x --out /s/x.salvaged"),
            ("mqstore rebuild STORE --config FILE", "mqstore rebuild /s/x --config broker.conf"),
        ] {
            assert_eq!(fill(command, Path::new("/s/x"), &words).as_deref(), Some(expected));
        }
        let many = Words { topics: vec!["a"; 21], ..Words::default() };
        let filled = fill("mqstore rebuild STORE -t TOPIC --apply", Path::new("s"), &many);
        assert_eq!(filled.as_deref(), Some("mqstore rebuild s --apply"));
        for topics in [vec![], vec!["a"; 21]] {
            let words = Words { topics, needs_topics: true, ..Words::default() };
            assert_eq!(fill("mqstore rebuild STORE -t TOPIC", Path::new("s"), &words), None);
        }
    }

    #[test]
    fn without_a_key_none_is_asked_for() {
        let words = Words { topics: vec!["a"], ..Words::default() };
        assert_eq!(fill("mqstore query STORE -t TOPIC -k KEY", Path::new("s"), &words), None);
        let filled = fill("mqstore rebuild STORE -t TOPIC", Path::new("s"), &words);
        assert_eq!(filled.as_deref(), Some("mqstore rebuild s -t a"));
    }

    #[test]
    fn nothing_that_moves_a_cursor_gets_into_a_command() {
        let words = Words { key: "a\u{1b}[2J", ..Words::default() };
        assert_eq!(fill("mqstore query STORE -k KEY", Path::new("s"), &words), None);
        assert_eq!(fill("mqstore verify STORE", Path::new("a\nb"), &words), None);
    }

    #[test]
    fn the_commands_of_a_text_are_ours_and_drop_nothing() {
        let found = |text| commands_in(text).collect::<Vec<_>>();
        assert_eq!(
            found("look at `x`, or `mqstore a`: b, `mqstore c --drop-beyond`, `mqstore d`"),
            ["mqstore a", "mqstore d"]
        );
        assert_eq!(found("none needed"), [""; 0]);
    }
}
