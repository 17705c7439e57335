//! Parity arithmetic: P is the exclusive or of the data columns, Q their weighted sum in GF(2^8).
//!
//! The field has the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d) and the generator 2, as Linux MD has
//! (H. P. Anvin, "The mathematics of RAID-6"). Column `i` has the weight 2^i in Q. Everything works on words
//! of eight bytes without tables.

/// The polynomial of the field without its highest term.
const POLYNOMIAL: u8 = 0x1d;
const LOW_BITS: u64 = 0x0101_0101_0101_0101;
const WORD_BYTES: usize = 8;

/// Largest number of data columns whose weights in Q all differ.
pub(super) const DATA_COLUMNS_MAX: usize = 255;

/// Multiplies each of the eight bytes of a word by 2.
#[inline]
fn double_word(word: u64) -> u64 {
    let carries = word >> 7 & LOW_BITS;
    // Every bit of each byte with a carry: a subtraction and a mask are vector instructions where a product is none.
    let bytes = (carries << 8).wrapping_sub(carries);
    ((word & !(LOW_BITS << 7)) << 1) ^ (bytes & (LOW_BITS * u64::from(POLYNOMIAL)))
}

/// Multiplies each byte of a word by `factor`.
fn multiply_word(word: u64, factor: u8) -> u64 {
    let (mut product, mut power, mut rest) = (0, word, factor);
    while rest != 0 {
        if rest & 1 == 1 {
            product ^= power;
        }
        power = double_word(power);
        rest >>= 1;
    }
    product
}

fn multiply(left: u8, right: u8) -> u8 {
    multiply_word(left.into(), right) as u8
}

/// The generator to the power of `exponent`, which may be negative.
fn power_of_two(exponent: i32) -> u8 {
    (0..exponent.rem_euclid(255)).fold(1, |power, _| multiply(power, 2))
}

/// The inverse of a factor other than 0: its 254th power.
fn inverse(factor: u8) -> u8 {
    (0..254).fold(1, |power, _| multiply(power, factor))
}

/// Replaces each word of `target` by a function of it and the word of `source` at the same place. Stops at the end
/// of the shorter one.
fn combine(target: &mut [u8], source: &[u8], operation: impl Fn(u64, u64) -> u64) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the instructions that the function is compiled to.
        return unsafe { combine_wide(target, source, operation) };
    }
    combine_words(target, source, operation);
}

/// [`combine_words`] in vectors of 32 bytes: twice as fast as in those that each processor of this kind has.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn combine_wide(target: &mut [u8], source: &[u8], operation: impl Fn(u64, u64) -> u64) {
    combine_words(target, source, operation);
}

#[inline(always)]
fn combine_words(target: &mut [u8], source: &[u8], operation: impl Fn(u64, u64) -> u64) {
    // Arrays of a known length: to copy as many bytes as a slice has is a call for each word.
    let (targets, target_rest) = target.as_chunks_mut::<WORD_BYTES>();
    let (sources, source_rest) = source.as_chunks::<WORD_BYTES>();
    for (target, source) in targets.iter_mut().zip(sources) {
        *target = operation(u64::from_le_bytes(*target), u64::from_le_bytes(*source)).to_le_bytes();
    }
    let length = target_rest.len().min(source_rest.len());
    let word = |bytes: &[u8]| {
        let mut word = [0; WORD_BYTES];
        word[..length].copy_from_slice(&bytes[..length]);
        u64::from_le_bytes(word)
    };
    let result = operation(word(target_rest), word(source_rest)).to_le_bytes();
    target_rest[..length].copy_from_slice(&result[..length]);
}

/// Adds `source` to `target`: exclusive or.
pub(super) fn add(target: &mut [u8], source: &[u8]) {
    combine(target, source, |target, source| target ^ source);
}

/// Adds `source`, multiplied by the weight of data column `column` in Q, to `target`.
pub(super) fn add_weighted(target: &mut [u8], source: &[u8], column: usize) {
    add_product(target, source, power_of_two((column % DATA_COLUMNS_MAX) as i32));
}

fn add_product(target: &mut [u8], source: &[u8], factor: u8) {
    // One mask for each bit of the factor: the same instructions for all words, without a branch.
    let masks: [u64; 8] = std::array::from_fn(|bit| if factor >> bit & 1 == 1 { u64::MAX } else { 0 });
    combine(target, source, |target, source| {
        let (sum, _) =
            masks.iter().fold((target, source), |(sum, power), mask| (sum ^ power & mask, double_word(power)));
        sum
    });
}

/// Computes P of the columns, which are as long as `p`.
pub fn compute_p<'a>(columns: impl Iterator<Item = &'a [u8]>, p: &mut [u8]) {
    p.fill(0);
    columns.for_each(|column| add(p, column));
}

/// Computes Q of the columns, which are as long as `q`. One doubling for each column (Horner's rule).
pub fn compute_q<'a>(columns: impl DoubleEndedIterator<Item = &'a [u8]>, q: &mut [u8]) {
    q.fill(0);
    columns.rev().for_each(|column| combine(q, column, |q, column| double_word(q) ^ column));
}

/// The lost data columns cannot be computed from what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unsolvable;

/// Computes the data columns whose indices are in `lost`, in place, from the others and the parity that is left. All
/// are of one length; the content of lost columns is ignored.
///
/// # Errors
/// More columns are lost than parity is left.
pub(super) fn recover<C: AsRef<[u8]> + AsMut<[u8]>>(
    columns: &mut [C],
    lost: &[usize],
    p: Option<&[u8]>,
    q: Option<&[u8]>,
) -> Result<(), Unsolvable> {
    for &column in lost {
        columns.get_mut(column).ok_or(Unsolvable)?.as_mut().fill(0);
    }
    match (lost, p, q) {
        ([], _, _) => Ok(()),
        (&[x], Some(p), _) => {
            let mut result = p.to_vec();
            columns.iter().for_each(|column| add(&mut result, column.as_ref()));
            columns[x].as_mut().copy_from_slice(&result);
            Ok(())
        }
        (&[x], None, Some(q)) => {
            let rest = remainder_of_q(columns, q);
            add_product(columns[x].as_mut(), &rest, inverse(power_of_two(x as i32)));
            Ok(())
        }
        (&[x, y], Some(p), Some(q)) if x != y => {
            // With P' = Dx + Dy and Q' = 2^x Dx + 2^y Dy: Dx = (2^(y-x) P' + 2^-x Q') / (2^(y-x) + 1).
            let mut p_rest = p.to_vec();
            columns.iter().for_each(|column| add(&mut p_rest, column.as_ref()));
            let q_rest = remainder_of_q(columns, q);
            let distance = power_of_two(y as i32 - x as i32);
            let divisor = inverse(distance ^ 1);
            let first = columns[x].as_mut();
            add_product(first, &p_rest, multiply(distance, divisor));
            add_product(first, &q_rest, multiply(power_of_two(-(x as i32)), divisor));
            add(&mut p_rest, columns[x].as_ref());
            columns[y].as_mut().copy_from_slice(&p_rest);
            Ok(())
        }
        _ => Err(Unsolvable),
    }
}

/// Q without the share of the columns; lost ones are zero.
fn remainder_of_q<C: AsRef<[u8]>>(columns: &[C], q: &[u8]) -> Vec<u8> {
    let mut rest = vec![0; q.len()];
    compute_q(columns.iter().map(AsRef::as_ref), &mut rest);
    add(&mut rest, q);
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_env::Random;

    /// Multiplication as the definition of the field has it: carry-less, then reduced.
    fn product_by_definition(left: u8, right: u8) -> u8 {
        let mut product = (0..8).fold(0_u16, |sum, bit| sum ^ ((u16::from(left) << bit) * u16::from(right >> bit & 1)));
        for bit in (8..16).rev() {
            if product >> bit & 1 == 1 {
                product ^= 0x11d << (bit - 8);
            }
        }
        product as u8
    }

    #[test]
    fn multiplies_as_the_field_defines() {
        for left in 0..=255 {
            assert_eq!(double_word(u64::from(left) * LOW_BITS), u64::from(product_by_definition(left, 2)) * LOW_BITS);
            for right in 0..=255 {
                assert_eq!(multiply(left, right), product_by_definition(left, right), "{left} times {right}");
            }
            if left > 0 {
                assert_eq!(product_by_definition(left, inverse(left)), 1, "{left}");
            }
        }
    }

    #[test]
    fn weights_of_all_columns_differ() {
        let weights: std::collections::BTreeSet<u8> =
            (0..DATA_COLUMNS_MAX).map(|column| power_of_two(column as i32)).collect();
        assert_eq!(weights.len(), DATA_COLUMNS_MAX);
        assert_eq!(multiply(power_of_two(-7), power_of_two(7)), 1);
    }

    fn stripe(random: &mut Random, columns: usize, length: usize) -> (Vec<Vec<u8>>, Vec<u8>, Vec<u8>) {
        let mut data = vec![vec![0; length]; columns];
        data.iter_mut().for_each(|column| random.fill_bytes(column));
        let (mut p, mut q) = (vec![0; length], vec![0; length]);
        compute_p(data.iter().map(Vec::as_slice), &mut p);
        compute_q(data.iter().map(Vec::as_slice), &mut q);
        (data, p, q)
    }

    /// Every number of columns up to 20, and the largest; each loss of at most two of data, P and Q; lengths that are no
    /// whole words.
    #[test]
    fn recovers_every_loss_of_two_columns() {
        let mut random = Random::named(1, "parity");
        let mut recovered = 0;
        for columns in (1..=20).chain([63, DATA_COLUMNS_MAX]) {
            let (data, p, q) = stripe(&mut random, columns, 8 + columns % 13);
            let step = if columns > 20 { 17 } else { 1 };
            let mut check = |lost: &[usize], p: Option<&[u8]>, q: Option<&[u8]>| {
                let mut damaged = data.clone();
                lost.iter().for_each(|&column| damaged[column].fill(0xee));
                recover(&mut damaged, lost, p, q).unwrap();
                assert_eq!(damaged, data, "{lost:?} of {columns}, P {}, Q {}", p.is_some(), q.is_some());
                recovered += 1;
            };
            for x in (0..columns).step_by(step) {
                check(&[x], Some(&p), Some(&q));
                check(&[x], Some(&p), None);
                check(&[x], None, Some(&q));
                for y in (0..columns).step_by(step).filter(|y| *y != x) {
                    check(&[x, y], Some(&p), Some(&q));
                }
            }
        }
        println!("reached: block raid/parity: {recovered} losses recovered");
    }

    #[test]
    fn refuses_more_losses_than_parity() {
        let (mut data, p, q) = stripe(&mut Random::named(2, "parity"), 5, 16);
        for (lost, p, q) in [
            (&[0][..], None, None),
            (&[0, 1], Some(&p[..]), None),
            (&[0, 1], None, Some(&q[..])),
            (&[2, 2], Some(&p), Some(&q)),
            (&[0, 1, 2], Some(&p), Some(&q)),
            (&[5], Some(&p), Some(&q)),
        ] {
            assert_eq!(recover(&mut data, lost, p, q), Err(Unsolvable), "{lost:?}");
        }
    }

    #[test]
    fn updates_of_parity_equal_parity_of_the_update() {
        let mut random = Random::named(3, "parity");
        let (mut data, mut p, mut q) = stripe(&mut random, 9, 27);
        for column in [0, 3, 8, 3] {
            let mut delta = data[column].clone();
            random.fill_bytes(&mut data[column]);
            add(&mut delta, &data[column]);
            add(&mut p, &delta);
            add_weighted(&mut q, &delta, column);
            let (mut fresh_p, mut fresh_q) = (vec![0; 27], vec![0; 27]);
            compute_p(data.iter().map(Vec::as_slice), &mut fresh_p);
            compute_q(data.iter().map(Vec::as_slice), &mut fresh_q);
            assert_eq!((&p, &q), (&fresh_p, &fresh_q));
        }
    }
}
