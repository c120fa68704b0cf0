//! The messages that all benchmarks write: bodies of one size, a tag, a key and a unique key, from a
//! fixed seed.

/// A message's parts, ready to be appended.
pub(crate) struct Sample {
    /// The body.
    pub(crate) body: Vec<u8>,
    /// Properties as the format stores them, one for each message of a round.
    pub(crate) properties: Vec<Vec<u8>>,
}

impl Sample {
    /// `count` messages with bodies of `body_bytes`.
    pub(crate) fn new(body_bytes: usize, count: usize) -> Self {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let body = (0..body_bytes).map(|_| (random() >> 56) as u8).collect();
        let properties = (0..count)
            .map(|_| {
                let key = format!("order{:012x}", random() >> 16);
                let unique = format!("{:016X}{:016X}", random(), random());
                let tag = random() % 8;
                format!("TAGS\u{1}tag{tag}\u{2}KEYS\u{1}{key}\u{2}UNIQ_KEY\u{1}{unique}\u{2}")
                    .into_bytes()
            })
            .collect();
        Self { body, properties }
    }
}
