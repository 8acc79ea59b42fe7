//! Answers to all but ranges: numbers, keys, confirmations.
//!
//! They are read as they come, and never more than the request can be answered with: whatever listens at an address
//! may send without end.

use std::io;

use bytes::Buf;
use redis::RedisError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout_at};

use super::super::ANSWER_WITHIN;
use super::connection::Connection;
use super::{Answer, Failed, LONGEST_LINE, Values, number, refused, send, unreadable};

/// Memory for what comes at once.
const AT_ONCE: usize = 64 << 10;

/// The answers to one request, of one command or several, which are taken in turn.
pub(in crate::stores::redis) struct Replies<S> {
    stream: S,
    /// What has come and was not taken.
    answer: Answer,
    /// Bytes that may come, and those of them that have not.
    most: usize,
    left: usize,
    until: Instant,
}

impl Values {
    /// Sends `request`, whose answers have at most `most` bytes together, and waits until they begin. Not tried again,
    /// except on a new connection where a kept one does not answer.
    pub(in crate::stores::redis) async fn ask(
        &self,
        request: &[u8],
        most: usize,
    ) -> Result<Replies<Connection>, Failed> {
        if let Some(kept) = self.idle.take(()) {
            let wait = self.idle.wait(());
            match Replies::begin(kept, request, most).await {
                Err(Failed::ToAnswer(error)) if error.is_io_error() => {}
                begun => {
                    wait.end();
                    return begun;
                }
            }
        }
        let new = self.connect().await?;
        Replies::begin(new, request, most).await
    }

    /// All answers have been taken: the connection is kept. What follows them is nobody's answer.
    pub(in crate::stores::redis) fn end(
        &self,
        replies: Replies<Connection>,
    ) -> Result<(), Failed> {
        if !replies.answer.bytes.is_empty() {
            return Err(Failed::ToAnswer(unreadable()));
        }
        self.idle.keep((), replies.stream);
        Ok(())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Replies<S> {
    async fn begin(stream: S, request: &[u8], most: usize) -> Result<Self, Failed> {
        let until = Instant::now() + ANSWER_WITHIN;
        let answer = Answer::of(most.min(AT_ONCE) as u64);
        let mut replies = Self { stream, answer, most, left: most, until };
        let sent = timeout_at(until, send(&mut replies.stream, request)).await;
        sent.map_err(|_| late())?.map_err(|error| Failed::ToAnswer(error.into()))?;
        replies.more(LONGEST_LINE).await?;
        Ok(replies)
    }
}

impl<S: AsyncRead + Unpin> Replies<S> {
    /// The next answer, which is a number.
    pub(in crate::stores::redis) async fn number(&mut self) -> Result<u64, Failed> {
        self.line_of(b':').await
    }

    /// The next answer is a list: how many follow.
    pub(in crate::stores::redis) async fn count(&mut self) -> Result<u64, Failed> {
        self.line_of(b'*').await
    }

    /// The next answer is a list of two, which follow.
    pub(in crate::stores::redis) async fn pair(&mut self) -> Result<(), Failed> {
        match self.count().await? {
            2 => Ok(()),
            _ => Err(Failed::ToAnswer(unreadable())),
        }
    }

    /// The next answer, which is a text.
    pub(in crate::stores::redis) async fn text(&mut self) -> Result<Vec<u8>, Failed> {
        let len = usize::try_from(self.line_of(b'$').await?).unwrap_or(usize::MAX);
        let end = len.saturating_add(2);
        if end > self.answer.bytes.len().saturating_add(self.left) {
            return Err(Failed::TooLong { most: self.most });
        }
        while self.answer.bytes.len() < end {
            self.more(end).await?;
        }
        let come = &self.answer.bytes;
        if come.get(len..end) != Some(b"\r\n") {
            return Err(Failed::ToAnswer(unreadable()));
        }
        let text = come.get(..len).unwrap_or_default().to_vec();
        self.answer.bytes.advance(end);
        Ok(text)
    }

    /// The next answer says that what was asked for has been done.
    pub(in crate::stores::redis) async fn confirmation(&mut self) -> Result<(), Failed> {
        let len = self.len_of_line().await?;
        let line = self.answer.bytes.get(..len).unwrap_or_default();
        if !line.starts_with(b"+") {
            return Err(Failed::ToAnswer(refused(line)));
        }
        self.answer.bytes.advance(len);
        Ok(())
    }

    /// The number in the next line, which begins with `kind`.
    async fn line_of(&mut self, kind: u8) -> Result<u64, Failed> {
        let len = self.len_of_line().await?;
        let line = self.answer.bytes.get(..len).unwrap_or_default();
        let digits =
            line.strip_prefix(&[kind]).and_then(|line| line.strip_suffix(b"\r\n"));
        let Some(digits) = digits else { return Err(Failed::ToAnswer(refused(line))) };
        let number = number(digits).ok_or_else(|| Failed::ToAnswer(unreadable()))?;
        self.answer.bytes.advance(len);
        Ok(number)
    }

    /// Waits for the next line, which begins what has come.
    async fn len_of_line(&mut self) -> Result<usize, Failed> {
        loop {
            if let Some(len) = self.answer.len_of_line(0).map_err(Failed::ToAnswer)? {
                return Ok(len);
            }
            self.more(LONGEST_LINE).await?;
        }
    }

    /// Waits for more of what goes on to `end` at least.
    async fn more(&mut self, end: usize) -> Result<(), Failed> {
        let before = self.answer.bytes.len();
        let come = timeout_at(self.until, self.answer.more(&mut self.stream, end)).await;
        come.map_err(|_| late())?.map_err(Failed::ToAnswer)?;
        let n_bytes = self.answer.bytes.len() - before;
        let too_long = Failed::TooLong { most: self.most };
        self.left = self.left.checked_sub(n_bytes).ok_or(too_long)?;
        Ok(())
    }
}

fn late() -> Failed {
    Failed::ToAnswer(RedisError::from(io::Error::from(io::ErrorKind::TimedOut)))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, DuplexStream};

    use super::*;

    /// The answers to a request, which come in pieces of `piece` bytes; then the server closes.
    async fn replies(
        answer: &[u8],
        piece: usize,
        most: usize,
    ) -> Result<Replies<DuplexStream>, Failed> {
        let (ours, mut theirs) = tokio::io::duplex(piece);
        let answer = answer.to_vec();
        tokio::spawn(async move {
            let mut request = [0; 4];
            tokio::io::AsyncReadExt::read_exact(&mut theirs, &mut request).await.unwrap();
            // Whoever asked may have heard enough.
            let _ = theirs.write_all(&answer).await;
        });
        Replies::begin(ours, b"PING", most).await
    }

    fn run<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
            .block_on(work)
    }

    #[test]
    fn answers_come_in_pieces_of_any_size() {
        let long = vec![b'k'; 3 * AT_ONCE];
        let mut answer = b"*2\r\n$2\r\n17\r\n*3\r\n$0\r\n\r\n$4\r\n\r\n:1\r\n".to_vec();
        answer.extend(format!("${}\r\n", long.len()).into_bytes());
        answer.extend(&long);
        answer.extend(b"\r\n:4294967296\r\n+OK\r\n");
        for piece in [1, 7, 100_000] {
            run(async {
                let mut replies = replies(&answer, piece, answer.len()).await.unwrap();
                replies.pair().await.unwrap();
                assert_eq!(replies.text().await.unwrap(), b"17");
                assert_eq!(replies.count().await.unwrap(), 3);
                for text in [&b""[..], b"\r\n:1", &long] {
                    assert!(replies.text().await.unwrap() == text);
                }
                assert_eq!(replies.number().await.unwrap(), 1 << 32);
                replies.confirmation().await.unwrap();
                assert!(replies.answer.bytes.is_empty() && replies.left == 0);
                let Err(Failed::ToAnswer(error)) = replies.number().await else {
                    panic!("the server has closed")
                };
                assert!(error.is_io_error(), "{error}");
            });
        }
    }

    #[test]
    fn no_more_is_taken_than_a_request_can_be_answered_with() {
        for answer in [
            &b"$30\r\n0123456789\r\n"[..],
            b"$18446744073709551615\r\n",
            b"$10\r\n0123456789\r\n0123456789",
        ] {
            let taken = run(async { replies(answer, 64, 20).await?.text().await });
            assert!(matches!(taken, Err(Failed::TooLong { most: 20 })), "{taken:?}");
        }
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        for answer in [&b":1\r\n"[..], b"$x\r\n", b"$-1\r\n", b"$2\r\nabcd\r\n", b"\r\n"]
        {
            let taken = run(async { replies(answer, 64, 1000).await?.text().await });
            let Err(Failed::ToAnswer(error)) = taken else { panic!("{taken:?}") };
            assert!(!error.is_io_error(), "{}", answer.escape_ascii());
        }
        let taken =
            run(async { replies(b"-NOPERM x\r\n", 64, 99).await?.number().await });
        let Err(Failed::ToAnswer(error)) = taken else { panic!("{taken:?}") };
        assert_eq!(error.code(), Some("NOPERM"));
    }
}
