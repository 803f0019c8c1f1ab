//! Reads protobuf where it lies. What is not written as usual encoders do is [`Unusual`]: the generated decoder judges that.

/// Not for this reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unusual;

pub(super) type Read<T> = Result<T, Unusual>;

/// Bytes that are still to be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a>(&'a [u8]);

/// How a field is written, as its key says.
mod kind {
    pub(super) const VARINT: u64 = 0;
    pub(super) const FIXED64: u64 = 1;
    pub(super) const DELIMITED: u64 = 2;
    pub(super) const FIXED32: u64 = 5;
}

/// The key of a field that has a length: texts, bytes and messages.
pub(super) const fn delimited(number: u64) -> u64 {
    number << 3 | kind::DELIMITED
}

pub(super) const fn varint(number: u64) -> u64 {
    number << 3 | kind::VARINT
}

pub(super) const fn fixed64(number: u64) -> u64 {
    number << 3 | kind::FIXED64
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The key of the next field; 0 at the end.
    #[inline]
    pub(super) fn key(&mut self) -> Read<u64> {
        if self.0.is_empty() {
            return Ok(0);
        }
        let key = self.varint()?;
        // There is no field 0.
        if key < 8 || key > u64::from(u32::MAX) { Err(Unusual) } else { Ok(key) }
    }

    #[inline]
    pub(super) fn bytes(&mut self) -> Read<&'a [u8]> {
        let length = usize::try_from(self.varint()?).map_err(|_| Unusual)?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Unusual)?;
        self.0 = rest;
        Ok(bytes)
    }

    #[inline]
    pub(super) fn text(&mut self) -> Read<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Unusual)
    }

    #[inline]
    pub(super) fn double(&mut self) -> Read<f64> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(Unusual)?;
        self.0 = rest;
        Ok(f64::from_le_bytes(*bytes))
    }

    #[inline]
    pub(super) fn int64(&mut self) -> Read<i64> {
        Ok(i64::from_le_bytes(self.varint()?.to_le_bytes()))
    }

    /// Numbers of 32 bits are the lower half of what was written.
    #[inline]
    pub(super) fn int32(&mut self) -> Read<i32> {
        let [a, b, c, d, ..] = self.varint()?.to_le_bytes();
        Ok(i32::from_le_bytes([a, b, c, d]))
    }

    /// Passes over a field that has no number of `known`, or is written otherwise than those: the first is fine.
    #[inline]
    pub(super) fn skip_unless(&mut self, key: u64, known: &[u64]) -> Read<()> {
        if known.contains(&(key >> 3)) { Err(Unusual) } else { self.skip(key) }
    }

    #[inline]
    pub(super) fn skip(&mut self, key: u64) -> Read<()> {
        match key & 7 {
            kind::VARINT => self.varint().map(|_| ()),
            kind::FIXED64 => self.double().map(|_| ()),
            kind::DELIMITED => self.bytes().map(|_| ()),
            kind::FIXED32 => {
                self.0 = self.0.get(4..).ok_or(Unusual)?;
                Ok(())
            }
            _ => Err(Unusual),
        }
    }

    #[inline]
    fn varint(&mut self) -> Read<u64> {
        if let [byte @ 0..0x80, rest @ ..] = self.0 {
            self.0 = rest;
            return Ok(u64::from(*byte));
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Read<u64> {
        let mut value = 0;
        for at in 0..10 {
            let byte = *self.0.get(at).ok_or(Unusual)?;
            // The tenth byte has room for one bit.
            if at == 9 && byte > 1 {
                return Err(Unusual);
            }
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte < 0x80 {
                self.0 = &self.0[at + 1..];
                return Ok(value);
            }
        }
        Err(Unusual)
    }

    /// What was read since `start`, a copy of this cursor from then.
    pub(super) fn since(self, start: Self) -> &'a [u8] {
        &start.0[..start.0.len() - self.0.len()]
    }
}
