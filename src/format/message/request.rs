//! Requests of a client: messages of one queue, put together (`MessageDecoder#encodeMessage`).
//!
//! | at | size | type | field |
//! |---|---|---|---|
//! | 0 | 4 | i32 | length of all |
//! | 4 | 4 | i32 | 0; [`WITHOUT_KEY`] on the way to the client |
//! | 8 | 4 | i32 | 0 |
//! | 12 | 4 | i32 | FLAG |
//! | 16 | 4+n | i32 | BODYLENGTH, BODY |
//! | 20+n | 2+p | i16 | PROPERTIESLENGTH, PROPERTIES |

use hashbrown::{Equivalent, HashMap, HashSet};

use super::properties::{self, names};
use crate::format::width::saturating_u32;

pub const WITHOUT_KEY: u32 = 1;
/// Separators, name and value of a unique key; a host with IPv6 alone writes as many digits.
const KEY_LEN: usize = names::UNIQ_KEY.len() + 2 + 56;
const ORIGIN: &[u8] = b"MQSTORE_ORIGIN";
/// A broker adds properties of its own to the 32,767 bytes that a record can hold.
const MOST_PROPERTY_BYTES: usize = 32_500;
const MOST_REQUEST_BYTES: usize = 512 << 10;
const MOST_WAYS: usize = 4096;
const ANY_QUEUE: i32 = -1;
/// Messages that wait, or go to several queues, are requests of their own.
const ALONE: [&[u8]; 5] = [
    names::DELAY,
    names::INNER_MULTI_DISPATCH,
    b"TIMER_DELAY_SEC",
    b"TIMER_DELAY_MS",
    b"TIMER_DELIVER_MS",
];

#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    pub number: u64,
    pub topic: &'a [u8],
    pub queue_id: i32,
    /// Messages of one lane keep their order.
    pub lane: i32,
    /// Properties that it gets, before those of the same names that it has.
    pub added: &'a [u8],
    pub physical_offset: u64,
    pub flag: i32,
    pub properties: &'a [u8],
    pub body: &'a [u8],
}

#[derive(Debug)]
pub struct Rules {
    /// Names of properties.
    pub dropped: HashSet<Vec<u8>>,
    /// The broker that messages come from.
    pub broker: String,
    /// Most messages of a request.
    pub batch: usize,
    /// Whether messages go to their own queue, and not to any.
    pub keeps_queue: bool,
}

/// Messages on their way to the client, in frames.
///
/// A frame is its length, a kind, and a body. `W`: number of a way, queue, lane, topic. `M`: number
/// of the way, how many messages, their numbers, the messages. `N`: as `M`, and some lack a key.
#[derive(Debug)]
pub struct Requests {
    rules: Rules,
    /// By topic, queue and lane.
    ways: HashMap<(Vec<u8>, i32, i32), usize>,
    /// Requests that are not full, by way.
    held: Vec<Request>,
    ready: Vec<u8>,
}

#[derive(Clone, Debug, Default)]
struct Request {
    numbers: Vec<u8>,
    messages: Vec<u8>,
    lacks_key: bool,
}

impl Requests {
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self { rules, ways: HashMap::new(), held: Vec::new(), ready: Vec::new() }
    }

    pub fn add(&mut self, message: &Outgoing<'_>) {
        let is_retry = message.topic.starts_with(b"%RETRY%");
        let queue_id =
            if is_retry || !self.rules.keeps_queue { ANY_QUEUE } else { message.queue_id };
        let way = self.way(message.topic, queue_id, message.lane);
        let (properties, is_keyed, is_alone) = self.rules.properties(message);
        // A broker does not compare the properties of one of several messages with its own limit.
        let properties_len = properties.len() + if is_keyed { 0 } else { KEY_LEN };
        let is_single =
            is_alone || is_retry || message.body.is_empty() || properties_len > MOST_PROPERTY_BYTES;
        let size = 22 + message.body.len() + properties.len();
        let Some(request) = self.held.get_mut(way) else { return };
        if is_single || request.messages.len() + size > MOST_REQUEST_BYTES {
            request.emit(way, &mut self.ready);
        }
        request.numbers.extend(message.number.to_be_bytes());
        let out = &mut request.messages;
        out.reserve(size);
        request.lacks_key |= !is_keyed;
        let mark = if is_keyed { 0 } else { WITHOUT_KEY };
        for field in [saturating_u32(size), mark, 0, message.flag.cast_unsigned()] {
            out.extend(field.to_be_bytes());
        }
        out.extend(saturating_u32(message.body.len()).to_be_bytes());
        out.extend(message.body);
        // One that is alone may have more, and ends with the request.
        let [_, _, length @ ..] = saturating_u32(properties.len()).to_be_bytes();
        out.extend(length);
        out.extend(&properties);
        if is_single || request.numbers.len() / 8 >= self.rules.batch {
            request.emit(way, &mut self.ready);
        }
    }

    /// The frames of full requests; of `all`, the others as well.
    pub fn take(&mut self, all: bool) -> Vec<u8> {
        if all {
            self.emit_all();
        }
        std::mem::take(&mut self.ready)
    }

    fn emit_all(&mut self) {
        for (way, request) in self.held.iter_mut().enumerate() {
            request.emit(way, &mut self.ready);
        }
    }

    fn way(&mut self, topic: &[u8], queue_id: i32, lane: i32) -> usize {
        if let Some(way) = self.ways.get(&Way(topic, queue_id, lane)) {
            return *way;
        }
        if self.held.len() == MOST_WAYS {
            self.emit_all();
            self.held.clear();
            self.ways.clear();
        }
        let way = self.held.len();
        self.held.push(Request::default());
        self.ways.insert((topic.to_vec(), queue_id, lane), way);
        let numbers = [saturating_u32(way), queue_id.cast_unsigned(), lane.cast_unsigned()];
        frame(&mut self.ready, b'W', &[numbers.map(u32::to_be_bytes).as_flattened(), topic]);
        way
    }
}

impl Rules {
    /// Properties that a message is sent with; whether a unique key is one of them; whether it must
    /// be sent alone.
    fn properties(&self, message: &Outgoing<'_>) -> (Vec<u8>, bool, bool) {
        let added = || properties::iter(message.added);
        let origin = format!("{}/{}", self.broker, message.physical_offset);
        let own = message.properties.len() + message.added.len();
        let len = own + ORIGIN.len() + origin.len() + 2;
        let has_room = len <= MOST_PROPERTY_BYTES;
        // One more byte, for a last property without its end.
        let mut kept = Vec::with_capacity(len + 1);
        let (mut is_keyed, mut is_alone) = (false, false);
        let mut learn = |name: &[u8], value: &[u8]| {
            is_keyed |= name == names::UNIQ_KEY;
            is_alone |= ALONE.contains(&name) || (name == b"WAIT" && value != b"true");
        };
        for (name, value) in properties::iter(message.properties) {
            let is_replaced = (has_room && name == ORIGIN) || added().any(|(new, _)| new == name);
            if !is_replaced && !self.dropped.contains(name) {
                properties::push(&mut kept, name, value);
                learn(name, value);
            }
        }
        added().for_each(|(name, value)| learn(name, value));
        kept.extend(message.added);
        if has_room {
            properties::push(&mut kept, ORIGIN, origin.as_bytes());
        }
        (kept, is_keyed, is_alone)
    }
}

impl Request {
    /// Gives its memory back, too.
    fn emit(&mut self, way: usize, out: &mut Vec<u8>) {
        let Self { numbers, messages, lacks_key } = std::mem::take(self);
        if !numbers.is_empty() {
            let head =
                [saturating_u32(way), saturating_u32(numbers.len() / 8)].map(u32::to_be_bytes);
            let kind = if lacks_key { b'N' } else { b'M' };
            frame(out, kind, &[head.as_flattened(), &numbers, &messages]);
        }
    }
}

#[derive(Hash)]
struct Way<'a>(&'a [u8], i32, i32);

impl Equivalent<(Vec<u8>, i32, i32)> for Way<'_> {
    fn equivalent(&self, (topic, queue_id, lane): &(Vec<u8>, i32, i32)) -> bool {
        (self.0, self.1, self.2) == (topic, *queue_id, *lane)
    }
}

fn frame(out: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    let len = 1 + parts.iter().map(|part| part.len()).sum::<usize>();
    out.reserve(len + 4);
    out.extend(saturating_u32(len).to_be_bytes());
    out.push(kind);
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::bytes::i32_at;
    use crate::format::width::to_usize;

    fn requests(batch: usize) -> Requests {
        let dropped = HashSet::from_iter([b"DELAY".to_vec(), b"WAIT".to_vec()]);
        Requests::new(Rules { dropped, broker: "b".into(), batch, keeps_queue: true })
    }

    fn message(number: u64) -> Outgoing<'static> {
        Outgoing {
            number,
            topic: b"t",
            queue_id: 2,
            lane: 7,
            added: b"",
            physical_offset: 5,
            flag: 9,
            properties: b"UNIQ_KEY\x01k\x02",
            body: b"body",
        }
    }

    /// Kind of each frame, numbers of its messages, and their properties.
    fn read(mut bytes: &[u8]) -> Vec<(u8, Vec<u64>, Vec<Vec<u8>>)> {
        let mut found = Vec::new();
        while let Some((len, rest)) = bytes.split_first_chunk() {
            let (frame, rest) = rest.split_at(to_usize(u32::from_be_bytes(*len)));
            bytes = rest;
            let count = if frame[0] == b'W' { 0 } else { i32_at(frame, 5).unwrap() };
            let (numbers, mut rest) = frame[9..].split_at(8 * usize::try_from(count).unwrap());
            let numbers = numbers.as_chunks().0.iter().map(|raw| u64::from_be_bytes(*raw));
            let mut blocks = Vec::new();
            while frame[0] != b'W' && !rest.is_empty() {
                let (one, next) = rest.split_at(usize::try_from(i32_at(rest, 0).unwrap()).unwrap());
                let body = usize::try_from(i32_at(one, 16).unwrap()).unwrap();
                blocks.push(one[22 + body..].to_vec());
                rest = next;
            }
            found.push((frame[0], numbers.collect(), blocks));
        }
        found
    }

    #[test]
    fn full_requests_are_ready_and_the_others_on_demand() {
        let mut requests = requests(2);
        for number in 1..=3 {
            requests.add(&message(number));
        }
        let block = b"UNIQ_KEY\x01k\x02MQSTORE_ORIGIN\x01b/5\x02".to_vec();
        let full = (b'M', vec![1, 2], vec![block.clone(), block.clone()]);
        assert_eq!(read(&requests.take(false)), [(b'W', vec![], vec![]), full]);
        assert!(requests.take(false).is_empty());
        assert_eq!(read(&requests.take(true)), [(b'M', vec![3], vec![block])]);
        assert!(requests.take(true).is_empty());
        // Many ways would keep much.
        assert!(requests.held.iter().all(|request| request.messages.capacity() == 0));
    }

    #[test]
    fn messages_that_cannot_go_with_others_leave_alone_and_in_order() {
        let long = b"p".repeat(32_600);
        let mut block = Vec::new();
        properties::push(&mut block, b"n", &long);
        let alone = [
            Outgoing { body: b"", ..message(2) },
            Outgoing { added: b"WAIT\x01false\x02", ..message(2) },
            Outgoing { added: b"TIMER_DELAY_MS\x015\x02", ..message(2) },
            Outgoing { properties: &block, ..message(2) },
        ];
        for one in alone {
            let mut requests = requests(32);
            for message in [message(1), one, message(3)] {
                requests.add(&message);
            }
            let numbers: Vec<_> = read(&requests.take(true)).into_iter().map(|row| row.1).collect();
            assert_eq!(numbers, [vec![], vec![1], vec![2], vec![3]], "{one:?}");
        }
    }

    #[test]
    fn properties_are_replaced_dropped_and_marked() {
        let mut requests = requests(32);
        let stored =
            b"MQSTORE_ORIGIN\x01a/1\x02DELAY\x013\x02k\x01old\x02\x01x\x02y\x01\x02z\x01end";
        requests.add(&Outgoing { properties: stored, added: b"k\x01new\x02", ..message(1) });
        let bytes = requests.take(true);
        let (kind, _, blocks) = read(&bytes).pop().unwrap();
        assert_eq!(kind, b'N');
        assert_eq!(blocks, [b"z\x01end\x02k\x01new\x02MQSTORE_ORIGIN\x01b/5\x02"]);
        let begin = bytes.len() - 22 - 4 - blocks[0].len();
        assert_eq!(i32_at(&bytes, begin + 4), Some(WITHOUT_KEY.cast_signed()));
        assert_eq!(i32_at(&bytes, begin + 12), Some(9));
    }

    #[test]
    fn retries_go_to_any_queue_alone() {
        let mut requests = requests(32);
        requests.add(&Outgoing { topic: b"%RETRY%g", ..message(1) });
        let bytes = requests.take(false);
        assert_eq!(read(&bytes).len(), 2);
        assert_eq!(i32_at(&bytes, 9), Some(ANY_QUEUE));
    }

    #[test]
    fn more_ways_than_are_kept_lose_nothing() {
        let mut requests = requests(32);
        for number in 0..10_000 {
            let lane = i32::try_from(number).unwrap();
            requests.add(&Outgoing { lane, ..message(number) });
        }
        let rows = read(&requests.take(true));
        let mut numbers: Vec<_> = rows.into_iter().flat_map(|row| row.1).collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..10_000));
    }
}
