//! Single values of the binary protocol. Each function says why it cannot read one; none rounds or guesses.

use arrow_buffer::i256;

/// Days from 1970 to 2000, where the database begins to count.
const EPOCH_DAYS: i32 = 10_957;
const EPOCH_MICROS: i64 = EPOCH_DAYS as i64 * 86_400_000_000;

/// Why a value cannot be read.
pub(super) type Reason = String;

/// The bytes of a value of fixed width.
pub(super) fn fixed<const N: usize>(raw: &[u8]) -> Result<[u8; N], Reason> {
    raw.try_into().map_err(|_| format!("it has {} bytes instead of {N}", raw.len()))
}

pub(super) fn text(raw: &[u8]) -> Result<&str, Reason> {
    std::str::from_utf8(raw).map_err(|_| "it is not UTF-8".into())
}

/// Days since 1970.
pub(super) fn date(raw: &[u8]) -> Result<i32, Reason> {
    let days = i32::from_be_bytes(fixed(raw)?);
    if matches!(days, i32::MAX | i32::MIN) {
        return Err("it is infinite".into());
    }
    days.checked_add(EPOCH_DAYS).ok_or_else(|| "it is out of range".into())
}

/// Microseconds since 1970.
pub(super) fn timestamp(raw: &[u8]) -> Result<i64, Reason> {
    let micros = i64::from_be_bytes(fixed(raw)?);
    if matches!(micros, i64::MAX | i64::MIN) {
        return Err("it is infinite".into());
    }
    micros.checked_add(EPOCH_MICROS).ok_or_else(|| "it is out of range".into())
}

/// Microseconds since midnight.
pub(super) fn time(raw: &[u8]) -> Result<i64, Reason> {
    let micros = i64::from_be_bytes(fixed(raw)?);
    if micros < 86_400_000_000 { Ok(micros) } else { Err("24:00:00 is no time of a day".into()) }
}

/// The value times ten to the `scale`: digits to the base 10,000, the first of the given weight.
pub(super) fn numeric(raw: &[u8], scale: i8) -> Result<i256, Reason> {
    let broken = || "its digits are damaged".to_owned();
    let wide = || "it has more digits than its column".to_owned();
    let half = |at: usize| Some(u16::from_be_bytes(raw.get(2 * at..2 * at + 2)?.try_into().ok()?));
    let head = |at| half(at).ok_or_else(broken);
    let (count, weight, sign) = (usize::from(head(0)?), head(1)? as i16, head(2)?);
    let negative = match sign {
        0 => false,
        0x4000 => true,
        0xc000 => return Err("it is NaN".into()),
        _ => return Err("it is infinite".into()),
    };
    let ten = i256::from_i128(10);
    let mut total = i256::ZERO;
    // The power of ten that the last digit of `total` stands for, moved to the scale.
    let mut power = 4 * (i32::from(weight) + 1) + i32::from(scale);
    for index in 0..count {
        let digit = half(4 + index).filter(|digit| *digit < 10_000).ok_or_else(broken)?;
        power -= 4;
        // A last digit can reach below the scale, with zeros.
        let below = u32::try_from(-power).unwrap_or(0).min(4);
        let cut = 10_u16.pow(below);
        if digit % cut != 0 {
            return Err("it has more decimal places than its column".into());
        }
        let shifted = total.checked_mul(i256::from_i128(10_i128.pow(4 - below))).ok_or_else(wide)?;
        total = shifted.checked_add(i256::from_i128(i128::from(digit / cut))).ok_or_else(wide)?;
        if below > 0 {
            // What follows is below the scale altogether: it must be zero.
            if !(index + 1..count).all(|index| half(4 + index) == Some(0)) {
                return Err("it has more decimal places than its column".into());
            }
            power = 0;
            break;
        }
    }
    if total != i256::ZERO {
        for _ in 0..power.max(0) {
            total = total.checked_mul(ten).ok_or_else(wide)?;
        }
    }
    Ok(if negative { -total } else { total })
}

/// The items of an array of one dimension; the rest of it is not kept: where it starts to count.
pub(super) fn items(raw: &[u8]) -> Result<Vec<Option<&[u8]>>, Reason> {
    let mut reader = Reader(raw);
    let dimensions = reader.int()?;
    reader.take(8)?;
    if dimensions == 0 {
        return Ok(Vec::new());
    }
    if dimensions != 1 {
        return Err(format!("it is an array of {dimensions} dimensions"));
    }
    let count = usize::try_from(reader.int()?).map_err(|_| damaged())?;
    reader.take(4)?;
    let mut items = Vec::with_capacity(count.min(raw.len() / 4));
    for _ in 0..count {
        let length = reader.int()?;
        items.push(match usize::try_from(length) {
            Ok(length) => Some(reader.take(length)?),
            Err(_) => None,
        });
    }
    if reader.0.is_empty() { Ok(items) } else { Err(damaged()) }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Reason> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    fn int(&mut self) -> Result<i32, Reason> {
        Ok(i32::from_be_bytes(fixed(self.take(4)?)?))
    }
}

fn damaged() -> Reason {
    "the array is damaged".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(weight: i16, sign: u16, digits: &[u16]) -> Vec<u8> {
        let head = [digits.len() as u16, weight as u16, sign, 0];
        head.iter().chain(digits).flat_map(|half| half.to_be_bytes()).collect()
    }

    #[test]
    fn numerics_are_exact_or_refused() {
        for (value, scale, wanted) in [
            (raw(0, 0, &[]), 2, "0"),
            (raw(0, 0, &[12, 3400]), 2, "1234"),
            (raw(0, 0x4000, &[12, 3400]), 2, "-1234"),
            (raw(0, 0, &[12, 3400]), 6, "12340000"),
            (raw(1, 0, &[1]), 0, "10000"),
            (raw(2, 0, &[1]), 3, "100000000000"),
            (raw(-1, 0, &[1]), 4, "1"),
            (raw(-2, 0, &[5]), 8, "5"),
            (raw(-2, 0, &[5000]), 5, "5"),
            (raw(1, 0, &[1, 2, 3000]), 1, "100023"),
        ] {
            assert_eq!(numeric(&value, scale).map(|value| value.to_string()).as_deref(), Ok(wanted), "{value:?}");
        }
        for (value, scale) in [
            (raw(0, 0, &[12, 3456]), 2),
            (raw(-3, 0, &[1]), 2),
            (raw(0, 0xc000, &[]), 2),
            (raw(0, 0xd000, &[]), 2),
            (raw(0, 0xf000, &[]), 2),
            (raw(40, 0, &[9999]), 0),
            (raw(0, 0, &[10_000]), 0),
            (vec![0, 1, 0], 0),
            (vec![0, 1, 0, 0, 0, 0, 0, 0], 0),
        ] {
            assert!(numeric(&value, scale).is_err(), "{value:?}");
        }
    }

    #[test]
    fn the_ends_of_time_are_refused() {
        assert_eq!(date(&(-10_957_i32).to_be_bytes()), Ok(0));
        assert_eq!(timestamp(&(-EPOCH_MICROS - 1).to_be_bytes()), Ok(-1));
        for days in [i32::MAX, i32::MIN, i32::MAX - 1] {
            assert!(date(&days.to_be_bytes()).is_err());
        }
        for micros in [i64::MAX, i64::MIN, i64::MAX - 1] {
            assert!(timestamp(&micros.to_be_bytes()).is_err());
        }
        assert!(time(&86_400_000_000_i64.to_be_bytes()).is_err() && date(&[0]).is_err());
    }

    #[test]
    fn damaged_arrays_are_refused() {
        let array = |ints: &[i32]| ints.iter().flat_map(|int| int.to_be_bytes()).collect::<Vec<u8>>();
        assert_eq!(items(&array(&[0, 0, 23])), Ok(vec![]));
        let seven = 7_i32.to_be_bytes();
        assert_eq!(items(&array(&[1, 1, 23, 2, 1, 4, 7, -1])), Ok(vec![Some(&seven[..]), None]));
        for bad in [
            &[1, 0, 23][..],
            &[2, 0, 23, 1, 1, 1, 1, 4, 7],
            &[1, 0, 23, 9, 1, 4, 7],
            &[1, 0, 23, 1, 1, 99, 7],
            &[1, 0, 23, 1, 1, 4, 7, 8],
            &[1, 0, 23, -1, 1],
            &[-1, 0, 23],
        ] {
            assert!(items(&array(bad)).is_err(), "{bad:?}");
        }
    }
}
