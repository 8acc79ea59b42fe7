//! The frames of CQL's native protocol, version 4, as far as reading and writing rows of one table needs them.
//!
//! Every Cassandra since 2.2 and every ScyllaDB speaks it. Nothing here does I/O. What a server sends is checked:
//! a number that does not fit, or a text that is none, makes the answer [`Malformed`].

use bytes::{BufMut, Bytes, BytesMut};

/// Bytes before a body.
pub(super) const HEADER_BYTES: usize = 9;
/// No server sends or takes longer ones unless it is configured to.
pub(super) const LONGEST_BODY: usize = 256 << 20;
/// More columns and rows than any request here asks for.
const MOST_COLUMNS: usize = 64;
const MOST_ROWS: usize = 1 << 16;
const REQUEST: u8 = 0x04;
const RESPONSE: u8 = 0x84;

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Ask {
    Startup = 0x01,
    Query = 0x07,
    Prepare = 0x09,
    Execute = 0x0A,
    AuthResponse = 0x0F,
}

/// How many replicas must have answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Consistency {
    /// One: what it has is what was listed, most often.
    LocalOne = 0x0A,
    /// Most of those in the data centre: what was written outlives a node, and is seen whichever of them has it.
    LocalQuorum = 0x06,
}

/// An answer that means nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// The header of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    flags: u8,
    pub(super) stream: i16,
    opcode: u8,
    pub(super) body_bytes: usize,
}

impl Header {
    pub(super) fn parse(bytes: [u8; HEADER_BYTES]) -> Result<Self, Malformed> {
        let [version, flags, high, low, opcode, len @ ..] = bytes;
        let body_bytes = usize::try_from(i32::from_be_bytes(len)).ok();
        let body_bytes = body_bytes.filter(|bytes| *bytes <= LONGEST_BODY);
        if version != RESPONSE {
            return Err(Malformed);
        }
        let stream = i16::from_be_bytes([high, low]);
        Ok(Self { flags, stream, opcode, body_bytes: body_bytes.ok_or(Malformed)? })
    }
}

/// A request as it is sent.
pub(super) fn request(ask: Ask, stream: i16, body: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(HEADER_BYTES + body.len());
    frame.put_u8(REQUEST);
    frame.put_u8(0);
    frame.put_i16(stream);
    frame.put_u8(ask as u8);
    // What is longer was refused by `value`.
    frame.put_i32(i32::try_from(body.len()).unwrap_or(i32::MAX));
    frame.put_slice(body);
    frame.freeze()
}

/// The body of a request for plain CQL.
pub(super) fn startup() -> Vec<u8> {
    let mut body = vec![0, 1];
    string(&mut body, "CQL_VERSION");
    string(&mut body, "3.0.0");
    body
}

/// The login as `PasswordAuthenticator` takes it (SASL's PLAIN).
pub(super) fn login(user: &str, password: &str) -> Vec<u8> {
    let token = format!("\0{user}\0{password}");
    let mut body = Vec::new();
    value(&mut body, Some(token.as_bytes()));
    body
}

pub(super) fn prepare(statement: &str) -> Vec<u8> {
    let mut body = Vec::new();
    value(&mut body, Some(statement.as_bytes()));
    body
}

/// What a statement is run with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run<'a> {
    pub(super) values: &'a [Option<&'a [u8]>],
    pub(super) consistency: Consistency,
    /// Rows of one answer, and where the one before it ended.
    pub(super) page: Option<(i32, Option<&'a [u8]>)>,
}

pub(super) fn query(statement: &str, run: Run<'_>) -> Vec<u8> {
    let mut body = prepare(statement);
    parameters(&mut body, run);
    body
}

pub(super) fn execute(id: &[u8], run: Run<'_>) -> Vec<u8> {
    let mut body = Vec::new();
    short_bytes(&mut body, id);
    parameters(&mut body, run);
    body
}

fn parameters(body: &mut Vec<u8>, Run { values, consistency, page }: Run<'_>) {
    body.put_u16(consistency as u16);
    let state = page.and_then(|(_, state)| state);
    let has_values = u8::from(!values.is_empty());
    let pages = u8::from(page.is_some()) << 2 | u8::from(state.is_some()) << 3;
    body.put_u8(has_values | pages);
    if !values.is_empty() {
        body.put_u16(u16::try_from(values.len()).unwrap_or(u16::MAX));
        values.iter().for_each(|one| value(body, *one));
    }
    if let Some((n_rows, state)) = page {
        body.put_i32(n_rows);
        if state.is_some() {
            value(body, state);
        }
    }
}

fn string(body: &mut Vec<u8>, text: &str) {
    short_bytes(body, text.as_bytes());
}

fn short_bytes(body: &mut Vec<u8>, bytes: &[u8]) {
    body.put_u16(u16::try_from(bytes.len()).unwrap_or(u16::MAX));
    body.put_slice(bytes);
}

fn value(body: &mut Vec<u8>, value: Option<&[u8]>) {
    let Some(bytes) = value else { return body.put_i32(-1) };
    body.put_i32(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
    body.put_slice(bytes);
}

/// What a server answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Ready,
    /// It wants a login.
    Authenticate,
    LoggedIn,
    Done,
    Rows(Rows),
    /// The name of a statement.
    Prepared(Bytes),
    Failed(Failed),
}

/// What a server refuses: its code and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failed {
    pub(super) code: i32,
    pub(super) text: String,
}

/// Rows of cells; an absent one is no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rows {
    pub(super) rows: Vec<Vec<Option<Bytes>>>,
    /// Where the next page begins.
    pub(super) more: Option<Bytes>,
}

impl Answer {
    /// The rows, if it has any.
    pub(super) fn rows(self) -> Option<Rows> {
        if let Self::Rows(rows) = self { Some(rows) } else { None }
    }

    pub(super) fn parse(header: Header, body: Bytes) -> Result<Self, Malformed> {
        let mut body = Body(body);
        if header.flags & 0x02 != 0 {
            body.take(16)?;
        }
        if header.flags & 0x08 != 0 {
            for _ in 0..body.short()? {
                body.short_bytes()?;
            }
        }
        if header.flags & 0x04 != 0 {
            for _ in 0..body.short()? {
                body.short_bytes()?;
                body.value()?;
            }
        }
        match header.opcode {
            0x00 => {
                let code = body.int()?;
                let text = body.short_bytes()?;
                let text = String::from_utf8_lossy(&text).into_owned();
                Ok(Self::Failed(Failed { code, text }))
            }
            0x02 => Ok(Self::Ready),
            0x03 => Ok(Self::Authenticate),
            0x08 => body.result(),
            0x10 => Ok(Self::LoggedIn),
            _ => Err(Malformed),
        }
    }
}

/// What is left of a body.
struct Body(Bytes);

impl Body {
    fn take(&mut self, n: usize) -> Result<Bytes, Malformed> {
        if n > self.0.len() {
            return Err(Malformed);
        }
        Ok(self.0.split_to(n))
    }

    fn short(&mut self) -> Result<u16, Malformed> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn int(&mut self) -> Result<i32, Malformed> {
        let bytes = self.take(4)?;
        Ok(i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn count(&mut self) -> Result<usize, Malformed> {
        usize::try_from(self.int()?).map_err(|_| Malformed)
    }

    fn short_bytes(&mut self) -> Result<Bytes, Malformed> {
        let len = self.short()?;
        self.take(len.into())
    }

    fn value(&mut self) -> Result<Option<Bytes>, Malformed> {
        match usize::try_from(self.int()?) {
            Ok(len) => self.take(len).map(Some),
            Err(_) => Ok(None),
        }
    }

    fn result(&mut self) -> Result<Answer, Malformed> {
        match self.int()? {
            // Nothing, another keyspace, another schema.
            1 | 3 | 5 => Ok(Answer::Done),
            2 => self.rows().map(Answer::Rows),
            4 => self.short_bytes().map(Answer::Prepared),
            _ => Err(Malformed),
        }
    }

    fn rows(&mut self) -> Result<Rows, Malformed> {
        let flags = self.int()?;
        let n_columns = self.count()?;
        if !(1..=MOST_COLUMNS).contains(&n_columns) {
            return Err(Malformed);
        }
        let more = if flags & 2 != 0 { self.value()? } else { None };
        if flags & 4 == 0 {
            let is_one_table = flags & 1 != 0;
            if is_one_table {
                self.table()?;
            }
            for _ in 0..n_columns {
                if !is_one_table {
                    self.table()?;
                }
                self.short_bytes()?;
                self.type_of_column(0)?;
            }
        }
        let n_rows = self.count()?;
        if n_rows > MOST_ROWS {
            return Err(Malformed);
        }
        let mut rows = Vec::new();
        for _ in 0..n_rows {
            let mut row = Vec::new();
            for _ in 0..n_columns {
                row.push(self.value()?);
            }
            rows.push(row);
        }
        Ok(Rows { rows, more })
    }

    /// Names of a keyspace and a table.
    fn table(&mut self) -> Result<(), Malformed> {
        self.short_bytes()?;
        self.short_bytes().map(drop)
    }

    fn type_of_column(&mut self, depth: u32) -> Result<(), Malformed> {
        // Deeper than any table has them.
        if depth > 16 {
            return Err(Malformed);
        }
        match self.short()? {
            0x00 => self.short_bytes().map(drop),
            0x20 | 0x22 => self.type_of_column(depth + 1),
            0x21 => {
                self.type_of_column(depth + 1)?;
                self.type_of_column(depth + 1)
            }
            0x30 => {
                self.table()?;
                for _ in 0..self.short()? {
                    self.short_bytes()?;
                    self.type_of_column(depth + 1)?;
                }
                Ok(())
            }
            0x31 => {
                for _ in 0..self.short()? {
                    self.type_of_column(depth + 1)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// How many answers these bytes begin with, the texts of whose cells are read, too.
pub(crate) fn n_answers(bytes: &[u8]) -> usize {
    let (mut rest, mut n) = (Bytes::copy_from_slice(bytes), 0);
    while let Some(header) = rest.first_chunk().copied()
        && let Ok(header) = Header::parse(header)
        && rest.len() - HEADER_BYTES >= header.body_bytes
    {
        let mut body = rest.split_to(HEADER_BYTES + header.body_bytes);
        let Ok(answer) = Answer::parse(header, body.split_off(HEADER_BYTES)) else {
            break;
        };
        let rows = answer.rows().map_or_else(Vec::new, |rows| rows.rows);
        for cell in rows.iter().flatten().flatten() {
            // What it is not, it need not be.
            let _ = set_of_texts(cell);
        }
        n += 1;
    }
    n
}

/// The texts of a value that is a set of them, such as the tokens of a node.
pub(super) fn set_of_texts(value: &[u8]) -> Result<Vec<String>, Malformed> {
    let mut body = Body(Bytes::copy_from_slice(value));
    let mut texts = Vec::new();
    for _ in 0..body.count()? {
        let text = body.value()?.ok_or(Malformed)?;
        texts.push(String::from_utf8(text.to_vec()).map_err(|_| Malformed)?);
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows_body() -> Vec<u8> {
        let mut body = vec![0, 0, 0, 2];
        // One table, more pages, two columns: a text and a map of ints to sets of texts.
        body.extend([0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 1, 9]);
        for name in ["ks", "table", "a"] {
            string(&mut body, name);
        }
        body.extend([0, 0x0D]);
        string(&mut body, "b");
        body.extend([0, 0x21, 0, 0x09, 0, 0x22, 0, 0x0D]);
        body.extend([0, 0, 0, 1]);
        value(&mut body, Some(b"cell"));
        value(&mut body, None);
        body
    }

    fn parsed(opcode: u8, flags: u8, body: Vec<u8>) -> Result<Answer, Malformed> {
        let header = Header { flags, stream: 0, opcode, body_bytes: body.len() };
        Answer::parse(header, body.into())
    }

    #[test]
    fn rows_are_read_behind_warnings_and_every_prefix_of_them_is_refused() {
        let mut body = vec![0, 1];
        string(&mut body, "a warning");
        body.extend(rows_body());
        let rows = Rows {
            rows: vec![vec![Some(Bytes::from_static(b"cell")), None]],
            more: Some(Bytes::from_static(&[9])),
        };
        assert_eq!(parsed(8, 8, body.clone()), Ok(Answer::Rows(rows)));
        for len in 0..body.len() {
            assert_eq!(parsed(8, 8, body[..len].to_vec()), Err(Malformed), "{len}");
        }
    }

    #[test]
    fn numbers_that_cannot_be_are_refused_without_taking_memory() {
        for body in [
            // 2^31 - 1 rows of no cells, and of one cell; a negative number of columns.
            [0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 0, 0x7F, 0xFF, 0xFF, 0xFF],
            [0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 1, 0x7F, 0xFF, 0xFF, 0xFF],
            [0, 0, 0, 2, 0, 0, 0, 4, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 1],
            // No such result.
            [0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ] {
            assert_eq!(parsed(8, 0, body.to_vec()), Err(Malformed), "{body:?}");
        }
        let nested = [[0, 0x20].repeat(1000), vec![0, 9]].concat();
        assert_eq!(Body(nested.into()).type_of_column(0), Err(Malformed));
        for header in [
            [0x84, 0, 0, 0, 8, 0x7F, 0xFF, 0xFF, 0xFF],
            [0x84, 0, 0, 0, 8, 0xFF, 0xFF, 0xFF, 0xFF],
            [0x85, 0, 0, 0, 8, 0, 0, 0, 0],
        ] {
            assert_eq!(Header::parse(header), Err(Malformed), "{header:?}");
        }
    }
}
