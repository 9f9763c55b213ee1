//! Random numbers from a seed, for emulated disks, the fault injector and the simulation. The engine itself draws
//! none.

/// splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
///
/// ```
/// use zoneplug_core::Random;
/// let (mut a, mut b) = (Random::new(7), Random::new(7));
/// assert_eq!(a.draw(), b.draw());
/// assert!(a.below(3) < 3);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Random(u64);

impl Random {
    /// Starts the sequence of `seed`.
    pub const fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns the next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `n`, which must not be 0. The deviation from uniform is below 2^-32.
    pub fn below(&mut self, n: u32) -> u32 {
        (self.draw() % u64::from(n)) as u32
    }

    /// Returns a number from `a` to `b`, both included.
    pub fn range(&mut self, a: u32, b: u32) -> u32 {
        a + self.below(b - a + 1)
    }

    /// Returns true once in `n` calls on average.
    pub fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    /// Returns one element of `of`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u32) as usize]
    }
}
