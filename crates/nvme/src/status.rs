//! Status codes: what a completion says about its command.

use std::fmt;

/// A status: a type and a code (Base, Status Code; CP and SLM for their own). All numbers of type 1h from
/// 88h on agree in two public implementations and are in the Base status table.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status {
    /// The status code type, 0h to 7h.
    pub kind: u8,
    /// The status code.
    pub code: u8,
}

macro_rules! statuses {
    ($($name:ident = $kind:literal, $code:literal, $words:literal;)*) => {
        impl Status {
            $(
                #[doc = concat!($words, ": type ", $kind, "h, code ", stringify!($code))]
                pub const $name: Self = Self { kind: $kind, code: $code };
            )*

            /// The specification's words for it, if it is one that we know.
            #[must_use]
            pub fn words(self) -> Option<&'static str> {
                match (self.kind, self.code) {
                    $(($kind, $code) => Some($words),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    SUCCESS = 0, 0x00, "Successful Completion";
    INVALID_OPCODE = 0, 0x01, "Invalid Command Opcode";
    INVALID_FIELD = 0, 0x02, "Invalid Field in Command";
    COMMAND_ID_CONFLICT = 0, 0x03, "Command ID Conflict";
    DATA_TRANSFER_ERROR = 0, 0x04, "Data Transfer Error";
    INTERNAL_ERROR = 0, 0x06, "Internal Error";
    ABORT_REQUESTED = 0, 0x07, "Command Abort Requested";
    ABORTED_BY_DELETION = 0, 0x08, "Command Aborted due to SQ Deletion";
    INVALID_NAMESPACE = 0, 0x0b, "Invalid Namespace or Format";
    COMMAND_SEQUENCE = 0, 0x0c, "Command Sequence Error";
    INVALID_SGL_COUNT = 0, 0x0e, "Invalid Number of SGL Descriptors";
    DATA_SGL_LENGTH = 0, 0x0f, "Data SGL Length Invalid";
    SGL_TYPE = 0, 0x11, "SGL Descriptor Type Invalid";
    SGL_OFFSET = 0, 0x16, "SGL Offset Invalid";
    KEEP_ALIVE_TIMEOUT = 0, 0x19, "Keep Alive Timeout Invalid";
    LBA_OUT_OF_RANGE = 0, 0x80, "LBA Out of Range";
    NAMESPACE_NOT_READY = 0, 0x82, "Namespace Not Ready";
    INVALID_QUEUE_ID = 1, 0x01, "Invalid Queue Identifier";
    ABORT_LIMIT = 1, 0x03, "Abort Command Limit Exceeded";
    EVENT_LIMIT = 1, 0x05, "Asynchronous Event Request Limit Exceeded";
    INVALID_LOG = 1, 0x09, "Invalid Log Page";
    FEATURE_NOT_CHANGEABLE = 1, 0x0e, "Feature Not Changeable";
    COMMAND_SIZE = 1, 0x83, "Command Size Limit Exceeded";
    INCOMPATIBLE_NAMESPACE = 1, 0x85, "Incompatible Namespace or Format";
    FAST_COPY = 1, 0x86, "Fast Copy Not Possible";
    OVERLAPPING_IO = 1, 0x87, "Overlapping I/O Range";
    NOT_REACHABLE = 1, 0x88, "Namespace Not Reachable";
    RESOURCES = 1, 0x89, "Insufficient Resources";
    PROGRAM_RESOURCES = 1, 0x8a, "Insufficient Program Resources";
    MEMORY_NAMESPACE = 1, 0x8b, "Invalid Memory Namespace";
    RANGE_SET = 1, 0x8c, "Invalid Memory Range Set";
    RANGE_SET_ID = 1, 0x8d, "Invalid Memory Range Set Identifier";
    PROGRAM_DATA = 1, 0x8e, "Invalid Program Data";
    PROGRAM_INDEX = 1, 0x8f, "Invalid Program Index";
    PROGRAM_TYPE = 1, 0x90, "Invalid Program Type";
    TOO_MANY_RANGES = 1, 0x91, "Maximum Memory Ranges Exceeded";
    TOO_MANY_RANGE_SETS = 1, 0x92, "Maximum Memory Range Sets Exceeded";
    TOO_MANY_ACTIVE = 1, 0x93, "Maximum Programs Activated";
    PROGRAM_BYTES = 1, 0x94, "Maximum Program Bytes Exceeded";
    RANGE_SET_IN_USE = 1, 0x95, "Memory Range Set In Use";
    NO_PROGRAM = 1, 0x96, "No Program";
    OVERLAPPING_RANGES = 1, 0x97, "Overlapping Memory Ranges";
    NOT_ACTIVATED = 1, 0x98, "Program Not Activated";
    PROGRAM_IN_USE = 1, 0x99, "Program In Use";
    NOT_DOWNLOADABLE = 1, 0x9a, "Program Index Not Downloadable";
    PROGRAM_TOO_BIG = 1, 0x9b, "Program Too Big";
    READ_ERROR = 2, 0x81, "Unrecovered Read Error";
    WRITE_FAULT = 2, 0x80, "Write Fault";
    HOST_PATH = 3, 0x70, "Host Pathing Error";
}

impl Status {
    // Connect gives the codes from 80h on other meanings than NVM commands do: Fabrics, Connect command,
    // status codes. They stand apart from the table, for the pairs of numbers are the same.

    /// Connect: the record format is not ours.
    pub const CONNECT_FORMAT: Self = Self { kind: 1, code: 0x80 };
    /// Connect: the controller is busy or has no queue left.
    pub const CONNECT_BUSY: Self = Self { kind: 1, code: 0x81 };
    /// Connect: a parameter is wrong; the result says which.
    pub const CONNECT_PARAMETER: Self = Self { kind: 1, code: 0x82 };
    /// Connect: the subsystem is another, or gone.
    pub const CONNECT_RESTART_DISCOVERY: Self = Self { kind: 1, code: 0x83 };
    /// Connect: this host may not.
    pub const CONNECT_HOST: Self = Self { kind: 1, code: 0x84 };

    /// Attempted Write to Read Only Range: of the NVM command set.
    pub const READ_ONLY: Self = Self { kind: 1, code: 0x82 };

    /// Whether the command did what it says.
    #[must_use]
    pub fn is_success(self) -> bool {
        self == Self::SUCCESS
    }

    /// The status field of a completion: code in bits 8:1, type in 11:9, Do Not Retry in 15.
    ///
    /// An error is marked not to be retried where the same command would meet the same answer: not those of
    /// the path (type 3h), of data that were damaged on the way, and of what is in use or not yet there.
    #[must_use]
    pub fn field(self) -> u16 {
        let value = u16::from(self.code) << 1 | u16::from(self.kind & 7) << 9;
        let is_final = !self.is_success() && !self.may_pass();
        value | u16::from(is_final) << 15
    }

    fn may_pass(self) -> bool {
        const PASSING: [Status; 5] = [
            Status::DATA_TRANSFER_ERROR,
            Status::NAMESPACE_NOT_READY,
            Status::CONNECT_BUSY,
            Status::RANGE_SET_IN_USE,
            Status::PROGRAM_IN_USE,
        ];
        self.kind == 3 || PASSING.contains(&self)
    }

    /// The status in the field of a completion.
    #[must_use]
    pub fn of_field(field: u16) -> Self {
        Self { kind: (field >> 9 & 7) as u8, code: (field >> 1 & 0xff) as u8 }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, code) = (self.kind, self.code);
        match self.words() {
            Some(words) => write!(f, "{words} (status type {kind}h, code {code:02x}h)"),
            None => write!(f, "status type {kind}h, code {code:02x}h"),
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
