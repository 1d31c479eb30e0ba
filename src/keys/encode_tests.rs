use std::sync::Arc;

use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::*;
use arrow_buffer::i256;
use arrow_schema::{DataType, Field, Schema};
use proptest::prelude::*;

use super::*;
use crate::error::ErrorKind;

fn batch(columns: Vec<ArrayRef>) -> RecordBatch {
    let field = |(i, column): (usize, &ArrayRef)| Field::new(format!("c{i}"), column.data_type().clone(), true);
    let fields: Vec<_> = columns.iter().enumerate().map(field).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

fn encoder(batch: &RecordBatch) -> KeyEncoder {
    let on: Vec<String> = batch.schema().fields().iter().map(|field| field.name().clone()).collect();
    let spec = KeySpec::of(&batch.schema(), &on, NullKeys::Equal, true).unwrap();
    KeyEncoder::new(&spec, &batch.schema()).unwrap()
}

fn canonical(columns: Vec<ArrayRef>) -> Vec<Vec<u8>> {
    let batch = batch(columns);
    (0..batch.num_rows()).map(|row| encoder(&batch).canonical(&batch, row).unwrap()).collect()
}

fn fingerprints(columns: Vec<ArrayRef>) -> Vec<u128> {
    let batch = batch(columns);
    let mut fingerprints = Vec::new();
    encoder(&batch).fingerprints(&batch, &mut fingerprints).unwrap();
    fingerprints
}

fn shown(columns: Vec<ArrayRef>) -> Vec<String> {
    let batch = batch(columns);
    (0..batch.num_rows()).map(|row| encoder(&batch).describe(&batch, row)).collect()
}

fn uuid_batch() -> RecordBatch {
    let bytes: Vec<u8> = (0..16).collect();
    let column = FixedSizeBinaryArray::try_from_iter(std::iter::once(bytes)).unwrap();
    let field = Field::new("c0", DataType::FixedSizeBinary(16), true)
        .with_metadata([("ARROW:extension:name".to_owned(), "arrow.uuid".to_owned())].into());
    RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![Arc::new(column)]).unwrap()
}

/// What is written down here is written down in stores: a change of it needs another [`KEY_VERSION`]. The fingerprints are by
/// the Python package `xxhash`, over the byte 1 and the bytes.
#[test]
fn golden_vectors_of_version_1() {
    let one = |column: ArrayRef| batch(vec![column]);
    let vectors: Vec<(&str, RecordBatch, &str, &str)> = vec![
        ("boolean", one(Arc::new(BooleanArray::from(vec![true]))), "0101", "45e2fdb5ac7616020236d86862625904"),
        (
            "integer",
            one(Arc::new(Int32Array::from(vec![-2]))),
            "02feffffffffffffffffffffffffffffff",
            "b369b643227426a839214e72205bdf35",
        ),
        (
            "decimal",
            one(Arc::new(Decimal128Array::from(vec![-1250]).with_precision_and_scale(9, 2).unwrap())),
            "03010083ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
            "f92008f449dd317643203b38a7aa2039",
        ),
        (
            "float",
            one(Arc::new(Float32Array::from(vec![1.5]))),
            "04000000000000f83f",
            "55b09ae1f8bf76994bde1064f147764b",
        ),
        (
            "string",
            one(Arc::new(StringArray::from(vec!["é"]))),
            "050200000000000000c3a9",
            "a9e3f8eeb62f33c1e4282bb51705db3e",
        ),
        (
            "binary",
            one(Arc::new(BinaryArray::from(vec![&[0u8, 255][..]]))),
            "06020000000000000000ff",
            "fb64d481a77fd05ae68b8a5ffd028212",
        ),
        ("uuid", uuid_batch(), "07000102030405060708090a0b0c0d0e0f", "58ea11fe49d96b734c8e7d64d78644b9"),
        ("date", one(Arc::new(Date32Array::from(vec![-1]))), "08ffffffffffffffff", "cbe12d808e6c5abb14c04aa506761423"),
        (
            "time",
            one(Arc::new(Time32SecondArray::from(vec![1]))),
            "0900ca9a3b00000000",
            "f3165aeb2791ce744ecc1751f11149a1",
        ),
        (
            "timestamp",
            one(Arc::new(TimestampSecondArray::from(vec![1]))),
            "0a00ca9a3b000000000000000000000000",
            "3ae985256a8f30a3317d36e2fbd4543f",
        ),
        (
            "instant",
            one(Arc::new(TimestampMillisecondArray::from(vec![1_000]).with_timezone("+02:00"))),
            "0b00ca9a3b000000000000000000000000",
            "14f4b108b7c3dd6f2bd8271873726ee6",
        ),
        ("null", one(Arc::new(StringArray::from(vec![None::<&str>]))), "00", "4d6ac5b7d1a1655cab94ac0ace7276c0"),
        (
            "composite",
            batch(vec![Arc::new(Int64Array::from(vec![7])), Arc::new(StringArray::from(vec!["a"]))]),
            "020700000000000000000000000000000005010000000000000061",
            "39cc01349d2f595c7a66d7ee527ee741",
        ),
    ];
    for (name, batch, bytes, fingerprint) in vectors {
        let encoder = encoder(&batch);
        let found: String = encoder.canonical(&batch, 0).unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found, bytes, "{name}");
        let mut fingerprints = Vec::new();
        encoder.fingerprints(&batch, &mut fingerprints).unwrap();
        assert_eq!(format!("{:032x}", fingerprints[0]), fingerprint, "{name}");
    }
}

#[test]
fn r107_one_value_is_one_key_in_whatever_type_it_comes() {
    let dictionary: DictionaryArray<Int32Type> = vec![Some("a"), None, Some("b")].into_iter().collect();
    // A dictionary with a null among its values.
    let values = StringArray::from(vec![Some("a"), None, Some("b")]);
    let by_value = DictionaryArray::<Int8Type>::new(Int8Array::from(vec![0, 1, 2]), Arc::new(values));
    let texts: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(vec![Some("a"), None, Some("b")])),
        Arc::new(LargeStringArray::from(vec![Some("a"), None, Some("b")])),
        Arc::new(StringViewArray::from(vec![Some("a"), None, Some("b")])),
        Arc::new(dictionary),
        Arc::new(by_value),
        Arc::new(StringArray::from(vec![Some("x"), Some("a"), None, Some("b"), None]).slice(1, 3)),
    ];
    let numbers: Vec<ArrayRef> = vec![
        Arc::new(Int8Array::from(vec![0, 127])),
        Arc::new(UInt8Array::from(vec![0, 127])),
        Arc::new(Int16Array::from(vec![0, 127])),
        Arc::new(UInt16Array::from(vec![0, 127])),
        Arc::new(Int32Array::from(vec![0, 127])),
        Arc::new(UInt32Array::from(vec![0, 127])),
        Arc::new(Int64Array::from(vec![0, 127])),
        Arc::new(UInt64Array::from(vec![0, 127])),
    ];
    let days: Vec<ArrayRef> = vec![
        Arc::new(Date32Array::from(vec![-1, 2])),
        Arc::new(Date64Array::from(vec![-86_400_000 + 5, 2 * 86_400_000 + 86_399_999])),
    ];
    let moments: Vec<ArrayRef> = vec![
        Arc::new(TimestampSecondArray::from(vec![-1, 2]).with_timezone("UTC")),
        Arc::new(TimestampMillisecondArray::from(vec![-1_000, 2_000]).with_timezone("+05:30")),
        Arc::new(TimestampMicrosecondArray::from(vec![-1_000_000, 2_000_000]).with_timezone("UTC")),
        Arc::new(TimestampNanosecondArray::from(vec![-1_000_000_000, 2_000_000_000]).with_timezone("UTC")),
    ];
    let decimal = |digits: Vec<i128>, scale| -> ArrayRef {
        Arc::new(Decimal128Array::from(digits).with_precision_and_scale(38, scale).unwrap())
    };
    let decimals: Vec<ArrayRef> = vec![
        decimal(vec![10, 0, -250], 1),
        decimal(vec![100, 0, -2_500], 2),
        Arc::new(Decimal32Array::from(vec![1, 0, -25]).with_precision_and_scale(9, 0).unwrap()),
        Arc::new(
            Decimal256Array::from(vec![i256::from(1_000), i256::ZERO, i256::from(-25_000)])
                .with_precision_and_scale(40, 3)
                .unwrap(),
        ),
    ];
    let nan = f64::from_bits(0xFFF8_0000_0000_0123);
    let floats: Vec<ArrayRef> = vec![
        Arc::new(Float64Array::from(vec![0.0, f64::NAN, 0.5])),
        Arc::new(Float64Array::from(vec![-0.0, nan, 0.5])),
        Arc::new(Float32Array::from(vec![-0.0, f32::NAN, 0.5])),
    ];
    for alike in [texts, numbers, days, moments, decimals, floats] {
        let first = fingerprints(vec![Arc::clone(&alike[0])]);
        for other in &alike[1..] {
            assert_eq!(fingerprints(vec![Arc::clone(other)]), first, "{:?}", other.data_type());
        }
        let mut distinct = first.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), first.len());
    }
}

#[test]
fn r106_keys_of_columns_are_equal_as_a_whole() {
    let pairs = |numbers: Vec<Option<i64>>, texts: Vec<Option<&str>>| -> Vec<ArrayRef> {
        vec![Arc::new(Int64Array::from(numbers)), Arc::new(StringArray::from(texts))]
    };
    let keys = canonical(pairs(
        vec![Some(1), Some(2), Some(1), Some(2), None, None],
        vec![Some("b"), Some("a"), Some("a"), Some("b"), Some("a"), None],
    ));
    let texts = |a: &str, b: &str| -> Vec<ArrayRef> {
        vec![Arc::new(StringArray::from(vec![a])), Arc::new(StringArray::from(vec![b]))]
    };
    let mut all = keys.clone();
    all.extend(canonical(texts("a", "bc")));
    all.extend(canonical(texts("ab", "c")));
    all.extend(canonical(texts("", "abc")));
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 9);
    assert_eq!(shown(pairs(vec![None], vec![Some("a\"b")])), ["c0 is null, c1 = \"a\\\"b\""]);
}

#[test]
fn values_are_shown_as_people_write_them() {
    let show = |column: ArrayRef| shown(vec![column]).remove(0);
    assert_eq!(show(Arc::new(BinaryArray::from(vec![&[0u8, 255][..]]))), "c0 = 00ff");
    assert_eq!(show(Arc::new(Date32Array::from(vec![1]))), "c0 = 1970-01-02");
    let decimal = Decimal128Array::from(vec![-1_250]).with_precision_and_scale(9, 2).unwrap();
    assert_eq!(show(Arc::new(decimal)), "c0 = -12.5");
    let moment = TimestampSecondArray::from(vec![0]).with_timezone("+02:00");
    assert_eq!(show(Arc::new(moment)), "c0 = 1970-01-01T00:00:00Z");
    assert_eq!(show(Arc::new(Float64Array::from(vec![0.1]))), "c0 = 0.1");
    let uuid = uuid_batch();
    assert_eq!(encoder(&uuid).describe(&uuid, 0), "c0 = 00010203-0405-0607-0809-0a0b0c0d0e0f");
    assert!(show(Arc::new(StringArray::from(vec!["x".repeat(500)]))).len() < 120);
    // What has no text must not stop anything: it is for people.
    assert_eq!(show(Arc::new(Date32Array::from(vec![i32::MAX]))), "c0 has a value that cannot be shown");
    let kept = |column: ArrayRef| {
        let batch = batch(vec![column]);
        encoder(&batch).values(&batch).remove(0)
    };
    let long = kept(Arc::new(StringArray::from(vec!["é".repeat(500)])));
    assert_eq!(arrow_array::cast::AsArray::as_string::<i32>(&long).value(0).len(), 256);
    assert_eq!(kept(Arc::new(Date32Array::from(vec![i32::MAX, 1]))).null_count(), 1);
}

#[test]
fn r106_nulls_are_refused_with_a_count_and_an_example() {
    let batch = batch(vec![Arc::new(Int64Array::from(vec![Some(1), None, None]))]);
    let spec = KeySpec::of(&batch.schema(), &["c0".to_owned()], NullKeys::Refuse, true).unwrap();
    let encoder = KeyEncoder::new(&spec, &batch.schema()).unwrap();
    let error = encoder.fingerprints(&batch, &mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("2 of 3 rows") && error.to_string().contains("c0 is null"), "{error}");
    // Of another kind than was recorded: an error, never other bytes.
    let other = Schema::new(vec![Field::new("c0", DataType::Utf8, true)]);
    assert!(KeyEncoder::new(&spec, &other).unwrap_err().to_string().contains("`c0` (integer) is of type Utf8"));
}

proptest! {
    #[test]
    fn keys_are_equal_when_their_values_are(
        rows in proptest::collection::vec((proptest::option::of(-3i64..3), proptest::option::of("[ab]{0,3}")), 1..20),
    ) {
        let numbers = rows.iter().map(|(number, _)| *number);
        let wide: ArrayRef = Arc::new(numbers.clone().collect::<Int64Array>());
        let small: ArrayRef = Arc::new(numbers.map(|number| number.map(|number| number as i8)).collect::<Int8Array>());
        let texts = || rows.iter().map(|(_, text)| text.as_deref());
        let plain: ArrayRef = Arc::new(texts().collect::<StringArray>());
        let views: ArrayRef = Arc::new(texts().collect::<StringViewArray>());
        let keys = fingerprints(vec![wide, plain]);
        prop_assert_eq!(&keys, &fingerprints(vec![small, views]));
        for (one, a) in rows.iter().zip(&keys) {
            for (other, b) in rows.iter().zip(&keys) {
                prop_assert_eq!(one == other, a == b);
            }
        }
    }
}
