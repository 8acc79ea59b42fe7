//! Answers as they come: in pieces of any size, wrong, and cut off.

use std::collections::VecDeque;
use std::io::{IoSliceMut, Read};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::ReadBuf;

use super::*;

/// What a server sends, in pieces; then it closes.
struct Pieces(VecDeque<Vec<u8>>);

impl Pieces {
    fn of(bytes: &[u8], len: usize) -> Self {
        Self(bytes.chunks(len).map(<[u8]>::to_vec).collect())
    }
}

impl AsyncRead for Pieces {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(mut piece) = self.0.pop_front() {
            let rest = piece.split_off(piece.len().min(into.remaining()));
            into.put_slice(&piece);
            if !rest.is_empty() {
                self.0.push_front(rest);
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// As a socket does, it has one piece for each read.
impl Stream for Pieces {
    async fn read_parts(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let Some(mut piece) = self.0.pop_front() else { return Ok(0) };
        let n_bytes = (&piece[..]).read_vectored(parts)?;
        let rest = piece.split_off(n_bytes);
        if !rest.is_empty() {
            self.0.push_front(rest);
        }
        Ok(n_bytes)
    }
}

fn received(
    answer: &[u8],
    piece: usize,
    expected: Expected,
) -> RedisResult<(Bytes, Option<u64>)> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        Answer::of(expected.most).receive(&mut Pieces::of(answer, piece), expected).await
    })
}

fn value(most: u64) -> Expected {
    Expected { most, number: Number::None }
}

fn value_and_number(most: u64) -> Expected {
    Expected { most, number: Number::Follows }
}

#[test]
fn a_value_comes_in_pieces_of_any_size() {
    let long = vec![b'\r'; 3 * FIRST_BYTES];
    for value in [&b""[..], b"\r\n", b"$3\r\nabc\r\n", &long] {
        let mut answer = format!("${}\r\n", value.len()).into_bytes();
        answer.extend(value);
        answer.extend(b"\r\n");
        let with_number = [&answer[..], b":4294967296\r\n"].concat();
        for piece in [1, 2, 7, 100_000] {
            if piece < 7 && value.len() > 100 {
                continue;
            }
            for most in [value.len() as u64, 1 << 40] {
                let got = received(&answer, piece, self::value(most)).unwrap();
                assert_eq!(got, (Bytes::copy_from_slice(value), None));
                let both = received(&with_number, piece, value_and_number(most));
                assert_eq!(both.unwrap(), (Bytes::copy_from_slice(value), Some(1 << 32)));
            }
        }
    }
}

#[test]
fn an_answer_that_is_not_the_value_is_an_error() {
    let long_line = [&b"$"[..], &[b'0'; 2 * LONGEST_LINE], b"4\r\nabcd\r\n"].concat();
    let unreadable = [
        &b"$-1\r\n"[..],
        b"$5\r\nabcde\r\n",
        b"$4x\r\nabcd\r\n",
        b"$99999999999999999999\r\n",
        b"$4\r\nabcdef",
        b"$4\r\nabcd\r\n$",
        b":4\r\n",
        b"+OK\r\n",
        b"*1\r\n$4\r\nabcd\r\n",
        b"\r\n",
        &long_line,
    ];
    for answer in unreadable {
        let error = received(answer, 3, value(4)).unwrap_err();
        assert!(!error.is_io_error(), "{}", answer.escape_ascii());
    }
    for answer in [&b""[..], b"$4", b"$4\r\n", b"$4\r\nabcd\r"] {
        let error = received(answer, 3, value(4)).unwrap_err();
        assert!(error.is_io_error(), "{}", answer.escape_ascii());
    }
    let answers =
        [&b"-WRONGTYPE no string\r\n"[..], b"$4\r\nabcd\r\n-WRONGTYPE no string\r\n"];
    for answer in answers {
        let error = received(answer, 3, value_and_number(4)).unwrap_err();
        assert_eq!(error.code(), Some("WRONGTYPE"), "{}", answer.escape_ascii());
    }
}

/// What is in the place after a whole value of so many bytes is received there, or what came instead.
fn in_place(
    answer: &[u8],
    piece: usize,
    len: usize,
) -> Result<Result<Vec<u8>, Bytes>, (Heard, RedisError)> {
    let mut place = vec![0xEE; len];
    let mut stream = Pieces::of(answer, piece);
    let received = receive(&mut stream, value(len as u64), Some(&mut place));
    // Nothing here is ever not ready.
    Ok(match received.now_or_never().unwrap()? {
        Got::InPlace => Ok(place),
        Got::Value(bytes, _) => Err(bytes),
    })
}

#[test]
fn a_value_is_received_in_its_place_in_pieces_of_any_size() {
    let long = vec![b'\r'; 300_000];
    for value in [&b"x"[..], b"\r\n", b"$3\r\nabc\r\n", &long] {
        let answer =
            [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat();
        for piece in [1, 2, 7, 100_000, 1 << 20] {
            assert_eq!(in_place(&answer, piece, value.len()).unwrap().unwrap(), value);
        }
    }
}

#[test]
fn what_is_not_the_value_of_a_place_is_what_it_is_without_one() {
    for piece in [1, 3, 100] {
        // A value that has become shorter: who asked compares lengths.
        assert_eq!(in_place(b"$2\r\nab\r\n", piece, 4).unwrap().unwrap_err(), "ab");
        for unreadable in [
            &b"$5\r\nabcde\r\n"[..],
            b"$4\r\nabcdef",
            b"$-1\r\n",
            b"*1\r\n$4\r\nabcd\r\n",
        ] {
            let (heard, error) = in_place(unreadable, piece, 4).unwrap_err();
            assert_eq!(heard, Heard::Something);
            assert!(!error.is_io_error(), "{}", unreadable.escape_ascii());
        }
        let (_, error) = in_place(b"-WRONGTYPE no string\r\n", piece, 40).unwrap_err();
        assert_eq!(error.code(), Some("WRONGTYPE"));
        for (cut, expected) in [
            (&b""[..], Heard::Nothing),
            (b"$4", Heard::Something),
            (b"$4\r\nabcd\r", Heard::Something),
        ] {
            let (heard, error) = in_place(cut, piece, 4).unwrap_err();
            assert_eq!((heard, error.is_io_error()), (expected, true));
        }
    }
}

/// Else it would be taken for the answer to whatever is asked next.
#[test]
fn an_answer_that_nobody_asked_for_is_noticed_with_the_one_before() {
    let two = b"$4\r\nabcd\r\n$4\r\nefgh\r\n";
    let (_, error) = in_place(two, 100, 4).unwrap_err();
    assert!(!error.is_io_error(), "{error}");
}

/// Any bytes are an answer or an error, and never more than was asked for.
#[test]
fn a_mutated_answer_is_received_or_refused() {
    let answer = b"$12\r\nabcdefghijkl\r\n:12\r\n";
    let letters = b"\r\n$:-+*0129ax";
    for seed in 0..40_000_u32 {
        let draws = draws(seed);
        let mut mutated = answer.to_vec();
        for draw in &draws[..1 + draws[0] as usize % 3] {
            let at = *draw as usize % mutated.len();
            let letter = letters[(*draw >> 16) as usize % letters.len()];
            match draw >> 30 {
                0 => mutated.truncate(at.max(1)),
                1 => mutated.insert(at, letter),
                _ => mutated[at] = letter,
            }
        }
        let piece = 1 + draws[3] as usize % 30;
        if let Ok((bytes, number)) = received(&mutated, piece, value_and_number(20)) {
            assert!(bytes.len() <= 20 && number.is_some(), "{}", mutated.escape_ascii());
        }
    }
}

/// Four numbers as good as random.
fn draws(seed: u32) -> [u32; 4] {
    let mut state = u64::from(seed) << 32 | 0x9e37_79b9;
    std::array::from_fn(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 32) as u32
    })
}
