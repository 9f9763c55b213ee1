//! Data structures with fields at fixed offsets. One table for each structure gives its type, its encoder and its
//! decoder, so an offset is written once.

/// A value of fixed length in a data structure, little endian.
pub(crate) trait Field: Copy {
    /// The length in bytes.
    const LEN: usize;

    /// Reads the first `LEN` bytes of `b`.
    fn get(b: &[u8]) -> Self;

    /// Writes the first `LEN` bytes of `b`.
    fn put(&self, b: &mut [u8]);
}

macro_rules! integer {
    ($($t:ty),*) => {$(
        impl Field for $t {
            const LEN: usize = size_of::<$t>();

            fn get(b: &[u8]) -> $t {
                let mut bytes = [0; size_of::<$t>()];
                bytes.copy_from_slice(&b[..size_of::<$t>()]);
                <$t>::from_le_bytes(bytes)
            }

            fn put(&self, b: &mut [u8]) {
                b[..size_of::<$t>()].copy_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}

integer!(u8, u16, u32, u64, u128);

impl<T: Field, const N: usize> Field for [T; N] {
    const LEN: usize = N * T::LEN;

    fn get(b: &[u8]) -> [T; N] {
        std::array::from_fn(|i| T::get(&b[i * T::LEN..]))
    }

    fn put(&self, b: &mut [u8]) {
        for (i, item) in self.iter().enumerate() {
            item.put(&mut b[i * T::LEN..]);
        }
    }
}

/// Defines a structure of so many bytes: `field: type = offset`, in ascending order. Bytes without a field are reserved;
/// they are encoded as 0 and ignored by the decoder. The default value has 0 everywhere.
macro_rules! structure {
    (
        $(#[$doc:meta])*
        $name:ident: $len:literal {
            $($(#[$field_doc:meta])* $field:ident: $type:ty = $at:literal,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl $name {
            /// The length in bytes.
            pub const LEN: usize = $len;

            /// Encodes the structure.
            pub fn encode(&self) -> [u8; $len] {
                let mut b = [0; $len];
                $($crate::spec::structure::Field::put(&self.$field, &mut b[$at..]);)*
                b
            }

            /// Decodes the structure.
            pub fn decode(b: &[u8; $len]) -> $name {
                $name { $($field: $crate::spec::structure::Field::get(&b[$at..]),)* }
            }

            /// Decodes the first bytes of `b`. `None`: there are too few.
            pub fn read(b: &[u8]) -> Option<$name> {
                b.first_chunk().map($name::decode)
            }
        }

        // The fields are in ascending order, do not overlap, and are within the structure.
        const _: () = {
            let mut _end = 0;
            $(
                assert!($at >= _end);
                _end = $at + <$type as $crate::spec::structure::Field>::LEN;
            )*
            assert!(_end <= $len);
        };

        impl Default for $name {
            fn default() -> $name {
                $name::decode(&[0; $len])
            }
        }

        impl $crate::spec::structure::Field for $name {
            const LEN: usize = $len;

            fn get(b: &[u8]) -> $name {
                $name { $($field: $crate::spec::structure::Field::get(&b[$at..]),)* }
            }

            fn put(&self, b: &mut [u8]) {
                b[..$len].copy_from_slice(&self.encode());
            }
        }
    };
}

pub(crate) use structure;

/// Returns `text` as a field of `N` bytes, truncated or padded with `pad`.
pub fn text<const N: usize>(text: &str, pad: u8) -> [u8; N] {
    let mut field = [pad; N];
    for (to, from) in field.iter_mut().zip(text.bytes()) {
        *to = from;
    }
    field
}

#[cfg(test)]
#[allow(unreachable_pub, dead_code)]
mod tests {
    use super::*;

    structure! {
        /// A pair.
        Pair: 4 {
            /// One.
            one: u8 = 0,
            /// Other.
            other: u16 = 2,
        }
    }

    structure! {
        /// A structure of nested parts.
        Whole: 24 {
            /// A number.
            number: u64 = 1,
            /// Pairs.
            pairs: [Pair; 2] = 12,
            /// Text.
            text: [u8; 3] = 21,
        }
    }

    #[test]
    fn fields_lie_where_the_table_says() {
        let pairs = [Pair { one: 0x11, other: 0x2122 }, Pair { one: 0x31, other: 0x4142 }];
        let s = Whole { number: 0x0102_0304_0506_0708, pairs, text: text("ab", b' ') };
        let b = s.encode();
        let want = [
            0, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0x11, 0, 0x22, 0x21, 0x31, 0, 0x42, 0x41, 0, b'a',
            b'b', b' ',
        ];
        assert_eq!(b, want);
        assert_eq!(Whole::decode(&b), s);
        assert_eq!((Whole::read(&b[..23]), Whole::read(&[b, b].concat())), (None, Some(s)));
        assert_eq!(Whole::default().encode(), [0; 24]);
        assert_eq!(text::<2>("abc", 0), *b"ab");
    }
}
