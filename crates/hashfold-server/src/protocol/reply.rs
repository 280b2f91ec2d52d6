//! Replies, in the form that the client asked for.

/// The version of the protocol that a connection uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// RESP2, until the client says `HELLO 3`.
    #[default]
    Resp2,
    /// RESP3, which has maps, sets, booleans, doubles and a null of its own.
    Resp3,
}

/// Writes replies to the output of a connection.
#[derive(Debug)]
pub struct Reply<'a> {
    out: &'a mut Vec<u8>,
    protocol: Protocol,
}

impl<'a> Reply<'a> {
    /// Writes after the bytes that `out` has.
    pub fn new(out: &'a mut Vec<u8>, protocol: Protocol) -> Reply<'a> {
        Reply { out, protocol }
    }

    /// Returns the version of the protocol.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Sets the version of the protocol, for this reply too.
    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// Returns the number of bytes that were not sent yet.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.out.len()
    }

    /// Writes bytes that are replies already.
    pub fn append(&mut self, replies: &[u8]) {
        self.out.extend_from_slice(replies);
    }

    /// Writes a line of text: `OK`, `PONG`.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// Writes an error, which starts with its code in capitals. Line ends become blanks.
    pub fn error(&mut self, message: &str) {
        self.out.push(b'-');
        let bytes =
            message.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte });
        self.out.extend(bytes);
        self.out.extend(b"\r\n");
    }

    /// Writes an integer.
    pub fn integer(&mut self, number: i64) {
        self.number_line(b':', number);
    }

    /// Writes bytes.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.number_line(b'$', bytes.len() as i64);
        // With room for the end of the line, for which a full buffer would double.
        self.out.reserve(bytes.len() + 2);
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Writes the absence of a value.
    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// Writes the absence of an array.
    pub fn null_array(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"*-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// Begins an array of `count` replies, which follow.
    pub fn array(&mut self, count: usize) {
        self.number_line(b'*', count as i64);
    }

    /// Begins a map of `count` pairs of replies, which follow; in RESP2 an array of both.
    pub fn map(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.array(2 * count),
            Protocol::Resp3 => self.number_line(b'%', count as i64),
        }
    }

    /// Begins a set of `count` replies, which follow; in RESP2 an array.
    pub fn set(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.array(count),
            Protocol::Resp3 => self.number_line(b'~', count as i64),
        }
    }

    /// Writes a truth value; in RESP2 0 or 1.
    pub fn boolean(&mut self, is_true: bool) {
        match (self.protocol, is_true) {
            (Protocol::Resp2, _) => self.integer(i64::from(is_true)),
            (Protocol::Resp3, true) => self.out.extend_from_slice(b"#t\r\n"),
            (Protocol::Resp3, false) => self.out.extend_from_slice(b"#f\r\n"),
        }
    }

    /// Writes a number with a fraction; in RESP2 its digits as bytes.
    pub fn double(&mut self, number: f64) {
        let digits = number.to_string();
        match self.protocol {
            Protocol::Resp2 => self.bulk(digits.as_bytes()),
            Protocol::Resp3 => self.line(b',', digits.as_bytes()),
        }
    }

    /// Writes text that is shown to a person as it is; in RESP2 as bytes.
    pub fn verbatim(&mut self, text: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => {
                self.number_line(b'=', text.len() as i64 + 4);
                self.out.extend_from_slice(b"txt:");
                self.out.extend_from_slice(text.as_bytes());
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Writes an array of bytes.
    pub fn bulks<'b>(
        &mut self,
        all: impl IntoIterator<Item = &'b str, IntoIter: ExactSizeIterator>,
    ) {
        let all = all.into_iter();
        self.array(all.len());
        all.for_each(|text| self.bulk(text.as_bytes()));
    }

    fn line(&mut self, first: u8, text: &[u8]) {
        self.out.push(first);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn number_line(&mut self, first: u8, number: i64) {
        let mut digits = itoa::Buffer::new();
        self.line(first, digits.format(number).as_bytes());
    }
}
