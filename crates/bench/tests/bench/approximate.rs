//! Approximate counts beside the truth, with keys as they come: the samples that the project carries.

use hedgerow::Options;
use hedgerow_bench::keys::shuffle;
use hedgerow_testing::environment::seed;
use ruzstd::decoding::StreamingDecoder;
use std::io::Read;

/// The keys of a sample, in order.
fn sample(packed: &[u8]) -> Vec<Vec<u8>> {
    let mut text = Vec::new();
    StreamingDecoder::new(packed).unwrap().read_to_end(&mut text).unwrap();
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let mut keys: Vec<Vec<u8>> = lines.map(<[u8]>::to_vec).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

#[test]
fn counts_of_urls_and_of_composite_keys_are_near() {
    let mut random = seed(4_409);
    let mut below = |end: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as usize % end
    };
    let samples = [
        ("urls", include_bytes!("../../../../data/urls.zst").as_slice()),
        ("composite", include_bytes!("../../../../data/composite.zst").as_slice()),
    ];
    for (name, packed) in samples {
        let mut keys = sample(packed);
        keys.retain(|key| key.len() <= 200);
        // Pages are small, so that the tree is as high as one of a million keys. They take no longer keys.
        let db = Options::new().page_bytes(1024).memory_limit_bytes(64 << 20).in_memory().unwrap();
        let keyspace = db.keyspace(name).unwrap();
        let mut order: Vec<&Vec<u8>> = keys.iter().collect();
        shuffle(&mut order);
        for key in order {
            keyspace.put(key, &vec![7; key.len() % 40]).unwrap();
        }
        let mut errors: Vec<f64> = (0..300)
            .map(|at| {
                let records = (keys.len() >> (at % 12)).max(1);
                let from = below(keys.len() - records + 1);
                let bounds = keys[from].as_slice()..=keys[from + records - 1].as_slice();
                let found = keyspace.approximate_count(bounds).unwrap();
                (found as f64 / records as f64 - 1.0).abs()
            })
            .collect();
        errors.sort_by(f64::total_cmp);
        let (median, most) = (errors[150], errors[299]);
        println!("{name}: {} keys, median {median:.3}, most {most:.3}", keys.len());
        assert!(median < 0.05 && errors[285] < 0.15 && most < 0.35, "{name}: {errors:?}");
    }
}
