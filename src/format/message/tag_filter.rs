//! Tag expressions of consumers.

use crate::format::java;

/// A parsed expression such as `paid || refunded`.
///
/// RocketMQ's store compares the hash in the queue entry, its client the tag itself
/// (`FilterAPI#buildSubscriptionData`, `DefaultMessageFilter#isMatchedByConsumeQueue`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagFilter {
    /// `None` accepts every message.
    tags: Option<Vec<Tag>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Tag {
    code: i32,
    text: Box<[u8]>,
}

impl TagFilter {
    /// Accepts every message.
    pub const ALL: Self = Self { tags: None };

    /// Parses tags separated by `||`, trimmed; empty tags are dropped. An empty expression and `*`
    /// accept every message; one without tags, such as `" "`, accepts none.
    #[must_use]
    pub fn parse(expression: &str) -> Self {
        if expression.is_empty() || expression == "*" {
            return Self::ALL;
        }
        let mut tags: Vec<Tag> = Vec::new();
        for piece in expression.split("||") {
            // As `String.trim`: all up to and including the space.
            let text = piece.trim_matches(|character| character <= ' ').as_bytes();
            if !text.is_empty() && !tags.iter().any(|known| *known.text == *text) {
                tags.push(Tag { code: java::hash_code(text), text: text.into() });
            }
        }
        Self { tags: Some(tags) }
    }

    /// Whether every message is accepted.
    #[inline]
    #[must_use]
    pub const fn is_all(&self) -> bool {
        self.tags.is_none()
    }

    /// Whether a queue entry with this code may match; the tag itself has to be compared too. The
    /// caller resolves addresses in the queue extension first.
    #[inline]
    #[must_use]
    pub fn matches_code(&self, tags_code: i64) -> bool {
        // `Long.intValue`: the low half.
        let low = tags_code as i32;
        self.tags.as_ref().is_none_or(|tags| tags.iter().any(|tag| tag.code == low))
    }

    /// Whether a message with this value of `TAGS` is accepted.
    #[inline]
    #[must_use]
    pub fn matches_tags(&self, tags: Option<&[u8]>) -> bool {
        match (&self.tags, tags) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(wanted), Some(tags)) => wanted.iter().any(|tag| *tag.text == *tags),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::queue::consume_queue::tags_code;

    #[test]
    fn empty_and_star_take_all() {
        for expression in ["", "*"] {
            let filter = TagFilter::parse(expression);
            assert!(filter.is_all() && filter.matches_code(7) && filter.matches_tags(None));
        }
    }

    #[test]
    fn no_tag_left_takes_none() {
        for expression in [" ", "||", " || ", "\t"] {
            let filter = TagFilter::parse(expression);
            assert!(!filter.is_all(), "{expression:?}");
            assert!(!filter.matches_code(0) && !filter.matches_tags(None), "{expression:?}");
            assert!(!filter.matches_tags(Some(b"")), "{expression:?}");
        }
    }

    #[test]
    fn tags_are_trimmed_and_each_counts() {
        let filter = TagFilter::parse(" paid ||\trefunded||||paid");
        assert_eq!(filter, TagFilter::parse("paid||refunded"));
        for tag in [&b"paid"[..], b"refunded"] {
            assert!(filter.matches_tags(Some(tag)) && filter.matches_code(tags_code(Some(tag))));
        }
        for tag in [None, Some(&b"pai"[..]), Some(b"*"), Some(b"paid || refunded")] {
            assert!(!filter.matches_tags(tag) && !filter.matches_code(tags_code(tag)), "{tag:?}");
        }
    }

    #[test]
    fn a_star_among_tags_is_a_tag() {
        let filter = TagFilter::parse("a || *");
        assert!(!filter.is_all());
        assert!(filter.matches_tags(Some(b"*")) && !filter.matches_tags(Some(b"b")));
    }

    #[test]
    fn equal_hashes_pass_by_code_only() {
        let filter = TagFilter::parse("Aa");
        assert!(filter.matches_code(tags_code(Some(b"BB"))));
        assert!(!filter.matches_tags(Some(b"BB")));
    }

    #[test]
    fn a_code_is_its_low_half() {
        let filter = TagFilter::parse("TagA");
        assert!(filter.matches_code(2_598_919 | 7 << 32));
        let negative = TagFilter::parse("polygenelubricants");
        assert!(negative.matches_code(i64::from(i32::MIN)) && negative.matches_code(0x8000_0000));
    }
}
