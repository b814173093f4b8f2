//! What the registers of the battery-backed clock mean. Pure, tested on the host.

/// Second, minute, hour, day, month, year, century, mode, as read from the clock. Seconds since 1970;
/// `None` when they are no date, as when there is no clock.
pub(crate) fn to_seconds(
    [second, minute, hour, day, month, year, century, mode]: [u8; 8],
) -> Option<u64> {
    let number =
        |value: u8| u64::from(if mode & 4 != 0 { value } else { (value >> 4) * 10 + (value & 15) });
    let afternoon = mode & 2 == 0 && hour & 0x80 != 0;
    let mut hours = number(hour & 0x7f);
    if mode & 2 == 0 {
        hours = hours % 12 + if afternoon { 12 } else { 0 };
    }
    let century = match number(century) {
        century @ 19..=29 => century,
        _ => 20,
    };
    let (year, month, day) = (century * 100 + number(year), number(month), number(day));
    let valid = (1970..3000).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hours < 24;
    // Days since 1970 by counting years from March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1;
    valid.then(|| ((days - 719_468) * 24 + hours) * 3600 + number(minute) * 60 + number(second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_number_formats_are_read() {
        // 2026-11-21 09:25:45, in decimal digits and in binary, both with 24 hours.
        let expected = Some(1_795_253_145);
        assert_eq!(to_seconds([0x45, 0x25, 0x09, 0x21, 0x11, 0x26, 0x20, 2]), expected);
        assert_eq!(to_seconds([45, 25, 9, 21, 11, 26, 20, 6]), expected);
        assert_eq!(to_seconds([45, 25, 9, 21, 11, 26, 0xff, 6]), expected, "no century");
    }

    #[test]
    fn twelve_hours_have_a_noon_and_a_midnight() {
        let at = |hour| to_seconds([0, 0, hour, 1, 1, 0, 0x20, 0]);
        let midnight = at(0x12).expect("a date");
        assert_eq!(at(0x92), Some(midnight + 12 * 3600));
        assert_eq!(at(0x81), Some(midnight + 13 * 3600));
    }

    #[test]
    fn leap_days_count() {
        let day = |year, month, day| to_seconds([0, 0, 0, day, month, year, 0x20, 2]);
        assert_eq!(day(0x24, 3, 1), day(0x24, 2, 0x29).map(|seconds| seconds + 86400));
        assert_eq!(to_seconds([0, 0, 0, 1, 1, 0x70, 0x19, 2]), Some(0));
    }

    #[test]
    fn an_absent_clock_gives_nothing() {
        assert_eq!(to_seconds([0xff; 8]), None);
        assert_eq!(to_seconds([0; 8]), None);
    }
}
