//! Compressed bodies: what the client compresses, and any body.

use super::*;

/// Compresses `body` as RocketMQ's client does (`MixAll.MESSAGE_COMPRESS_LEVEL`).
#[cfg(feature = "codecs")]
pub(crate) fn compress(method: Compression, body: &[u8]) -> Vec<u8> {
    const LEVEL: u32 = 5;
    match method {
        Compression::None => body.to_vec(),
        Compression::Zlib => {
            let level = flate2::Compression::new(LEVEL);
            let mut stream = flate2::write::ZlibEncoder::new(Vec::new(), level);
            std::io::Write::write_all(&mut stream, body).unwrap();
            stream.finish().unwrap()
        }
        Compression::Lz4 => lz4_frame::tests::encode(body),
        // Streamed: a frame with a known length gets a window of that length, which a reader may
        // refuse.
        Compression::Zstd => zstd::stream::encode_all(body, LEVEL.cast_signed()).unwrap(),
    }
}

#[test]
fn a_body_without_the_bit_is_what_it_is() {
    for sys_flag in [0, 0x700, 0xF0, !1] {
        let body = decompress(b"plain", sys_flag, 0).unwrap();
        assert!(matches!(body, Cow::Borrowed(b"plain")), "{sys_flag:#x}");
    }
}

#[test]
fn unknown_methods_are_named() {
    for sys_flag in [0x401, 0x501, 0x601, 0x701] {
        assert_eq!(decompress(b"", sys_flag, 9), Err(BodyError::UnknownMethod { sys_flag }));
    }
    let error = FormatError::from(BodyError::TooLarge { limit: 9 });
    assert_eq!(
        (error.kind, error.found.as_str()),
        (CorruptionKind::Body, "a body of more than 9 bytes")
    );
}

#[cfg(not(feature = "codecs"))]
#[test]
fn without_codecs_a_compressed_body_is_refused_by_name() {
    let method = Compression::Lz4;
    assert_eq!(decompress(b"", 0x101, 9), Err(BodyError::NotBuilt { method }));
}

#[cfg(feature = "codecs")]
mod codecs {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 300,
            rng_seed: RngSeed::Fixed(0x6D71_7374_6F72_6521),
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn any_body_comes_back_from_each_method(
            body in prop::collection::vec(prop_oneof![4 => Just(b'a'), 1 => any::<u8>()], 0..3000),
            short in 1..100_usize,
        ) {
            for method in [Compression::None, Compression::Zlib, Compression::Lz4, Compression::Zstd] {
                let packed = compress(method, &body);
                let undone = decompress(&packed, method.bits(), body.len()).unwrap();
                prop_assert_eq!(&*undone, &body[..]);
                if method != Compression::None && body.len() >= short {
                    let limit = body.len() - short;
                    prop_assert_eq!(
                        decompress(&packed, method.bits(), limit),
                        Err(BodyError::TooLarge { limit })
                    );
                }
            }
        }

        #[test]
        fn a_changed_stream_gets_an_answer_within_the_limit(
            body in prop::collection::vec(any::<u8>(), 1..500),
            position in any::<prop::sample::Index>(),
            flip in 1..=u8::MAX,
        ) {
            for method in [Compression::Zlib, Compression::Lz4, Compression::Zstd] {
                let mut packed = compress(method, &body);
                let position = position.index(packed.len());
                packed[position] ^= flip;
                if let Ok(undone) = decompress(&packed, method.bits(), 600) {
                    prop_assert!(undone.len() <= 600);
                }
            }
        }
    }
}
