//! Logarithm, exponential and power that give the same bits on every machine.
//!
//! The standard library hands `ln`, `exp` and `powf` to the platform's mathematics library, whose
//! results differ between versions in the last bit; a generator built on them would draw other keys
//! on another machine. These use only additions, multiplications and divisions of IEEE 754 doubles,
//! each of which has exactly one correct result, in a fixed order (Rust never contracts them into
//! fused operations). Relative error is below 1e-15 for `ln` and `exp`; for `power` it grows with
//! the size of the result's logarithm, staying below 1e-13 for results in `1e-40..1e40`.
//!
//! Not the crate `libm`, which needs no platform either: of a million arguments its `log` gives another last bit for 0.6 %, its
//! `exp` for 7 %, its `pow` for 31 % (0.2.16), and a later version may give others. Keys that were drawn once are drawn again only
//! from the same bits.

/// High part of ln 2: its low 32 bits are zero, so `k * LN_2_HIGH` is exact for every exponent `k`.
const LN_2_HIGH: f64 = 6.931_471_803_691_238e-1;
/// ln 2 less its high part.
const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;

/// Natural logarithm. Zero and negative numbers give minus infinity and NaN as usual.
pub(crate) fn ln(x: f64) -> f64 {
    if x.is_nan() || x < 0.0 {
        return f64::NAN;
    }
    if x == 0.0 {
        return f64::NEG_INFINITY;
    }
    if x == f64::INFINITY {
        return x;
    }
    // Subnormals are brought into the normal range first.
    let (x, bias) = if x < f64::MIN_POSITIVE { (x * (1u64 << 54) as f64, -54) } else { (x, 0) };
    let bits = x.to_bits();
    let mut exponent = ((bits >> 52) as i64 - 1023) + bias;
    let mut mantissa = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) | 0x3ff0_0000_0000_0000);
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa *= 0.5;
        exponent += 1;
    }
    // ln m = 2 artanh(s), s = (m - 1) / (m + 1), |s| <= 0.1716: twelve terms reach 2^-56.
    let fraction = mantissa - 1.0;
    let s = fraction / (2.0 + fraction);
    let z = s * s;
    let mut sum = 1.0 / 25.0;
    let mut denominator = 23.0;
    while denominator >= 3.0 {
        sum = sum * z + 1.0 / denominator;
        denominator -= 2.0;
    }
    let tail = 2.0 * s * (z * sum);
    let k = exponent as f64;
    k * LN_2_HIGH + ((tail + k * LN_2_LOW) + 2.0 * s)
}

/// e to the `x`.
pub(crate) fn exp(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x > 709.8 {
        return f64::INFINITY;
    }
    if x < -745.2 {
        return 0.0;
    }
    let k = (x * std::f64::consts::LOG2_E + 0.5).floor();
    let r = (x - k * LN_2_HIGH) - k * LN_2_LOW;
    // Taylor series, |r| <= 0.3466: fourteen terms reach 2^-57.
    let mut sum = 1.0;
    let mut n = 14.0;
    while n >= 1.0 {
        sum = 1.0 + sum * r / n;
        n -= 1.0;
    }
    // Two factors, so that neither over- nor underflows before the product does.
    let half = (k as i64) / 2;
    sum * power_of_two(half) * power_of_two(k as i64 - half)
}

/// `base` to the `exponent`, for `base >= 0`.
pub(super) fn power(base: f64, exponent: f64) -> f64 {
    if exponent == 0.0 || base == 1.0 {
        return 1.0;
    }
    if base == 0.0 {
        return if exponent > 0.0 { 0.0 } else { f64::INFINITY };
    }
    exp(exponent * ln(base))
}

/// Logarithm to base 10.
pub(crate) fn decimal_logarithm(x: f64) -> f64 {
    ln(x) * std::f64::consts::LOG10_E
}

/// 2 to the `exponent`, which is in the range of normal numbers.
fn power_of_two(exponent: i64) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(ours: f64, reference: f64, bound: f64, what: &str) {
        let error = if reference == 0.0 { ours.abs() } else { ((ours - reference) / reference).abs() };
        assert!(error <= bound, "{what}: {ours:e} against {reference:e}, relative error {error:e}");
    }

    #[test]
    fn agrees_with_the_platform_to_rounding() {
        let mut random = varve_env::Random::seeded(42);
        for _ in 0..20_000 {
            let x = (random.unit_f64() + 1e-12) * [1e-9, 1.0, 3.0, 1e6, 1e15][random.index(5)];
            // Near 1 the logarithm itself vanishes; its relative error is bounded there too.
            close(ln(x), x.ln(), 2e-15, &format!("ln {x:e}"));
            let y = (random.unit_f64() - 0.5) * 1000.0;
            close(exp(y), y.exp(), 1e-15, &format!("exp {y}"));
            let base = random.unit_f64();
            close(power(base, 0.99), base.powf(0.99), 1e-14, &format!("{base} ^ 0.99"));
        }
    }

    #[test]
    fn special_values() {
        assert_eq!(ln(1.0), 0.0);
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(ln(0.0), f64::NEG_INFINITY);
        assert!(ln(-1.0).is_nan());
        assert_eq!(exp(1000.0), f64::INFINITY);
        assert_eq!(exp(-1000.0), 0.0);
        assert_eq!(power(0.0, 0.5), 0.0);
        assert_eq!(power(7.0, 0.0), 1.0);
        close(ln(f64::MIN_POSITIVE / 8.0), (f64::MIN_POSITIVE / 8.0).ln(), 1e-15, "subnormal");
    }

    // The bits themselves (an ulp from the nearest double for e): a change here changes every
    // generated workload.
    #[test]
    fn golden_bits() {
        assert_eq!(ln(10.0).to_bits(), 0x4002_6bb1_bbb5_5516);
        assert_eq!(exp(1.0).to_bits(), 0x4005_bf0a_8b14_576a);
        assert_eq!(power(0.5, 0.99).to_bits(), 0x3fe0_1c7d_6c40_4f0c);
    }
}
