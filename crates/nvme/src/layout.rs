//! Every offset on the wire, in one place: each field with its structure, the clause that defines it, and
//! how well it is known ([`Grade`]).
//!
//! Clauses are named by their titles, since their numbers change from one revision to the next: *Base* is
//! the NVM Express Base specification (2.1), *TCP* its TCP transport, *Fabrics* the part of Base about
//! message-based controllers, *NVM*, *SLM* and *CP* the command sets for logical blocks, for subsystem
//! local memory and for computational programs. Where public implementations disagree,
//! `docs/firmware-sim.md` says which reading we took.

use crate::field::{Field, Grade, Place, Value};

macro_rules! layout {
    ($(
        $(#[$doc:meta])*
        $structure:ident: $size:literal, $clause:literal {
            $($field:ident: $type:ty, $at:literal, $grade:ident;)*
        }
    )*) => {
        $(
            $(#[$doc])*
            #[allow(missing_docs, reason = "the fields have the specification's names")]
            pub mod $structure {
                use super::Field;

                /// Bytes of the structure.
                pub const BYTES: usize = $size;
                $(pub const $field: Field<$size, $type> = Field::at($at);)*
            }
        )*

        /// All of them, in the order of this file.
        #[must_use]
        pub fn places() -> Vec<Place> {
            vec![$($(
                Place {
                    structure: stringify!($structure),
                    structure_bytes: $size,
                    field: stringify!($field),
                    at: $at,
                    bytes: <$type as Value>::BYTES,
                    clause: $clause,
                    grade: Grade::$grade,
                },
            )*)*]
        }
    };
}

layout! {
    /// A submission queue entry: what every command has.
    sqe: 64, "Base, Submission Queue Entry" {
        OPC: u8, 0, A;
        FLAGS: u8, 1, A;
        CID: u16, 2, A;
        NSID: u32, 4, A;
        CDW2: u32, 8, A;
        CDW3: u32, 12, A;
        CDW4: u32, 16, A;
        SGL1: [u8; 16], 24, A;
        CDW10: u32, 40, A;
        CDW11: u32, 44, A;
        CDW12: u32, 48, A;
        CDW13: u32, 52, A;
        CDW14: u32, 56, A;
        CDW15: u32, 60, A;
    }

    /// A scatter-gather list descriptor.
    sgl: 16, "Base, SGL Descriptor" {
        ADDRESS: u64, 0, A;
        LENGTH: u32, 8, A;
        TYPE: u8, 15, A;
    }

    /// A completion queue entry.
    cqe: 16, "Base, Completion Queue Entry" {
        RESULT: u64, 0, A;
        SQHD: u16, 8, A;
        SQID: u16, 10, A;
        CID: u16, 12, A;
        STATUS: u16, 14, A;
    }

    /// The Connect command's fields in its submission queue entry.
    connect: 64, "Fabrics, Connect command" {
        FCTYPE: u8, 4, A;
        RECFMT: u16, 40, A;
        QID: u16, 42, A;
        SQSIZE: u16, 44, A;
        CATTR: u8, 46, A;
        KATO: u32, 48, A;
    }

    /// The data of Connect.
    connect_data: 1024, "Fabrics, Connect command data" {
        HOSTID: [u8; 16], 0, A;
        CNTLID: u16, 16, A;
        SUBNQN: [u8; 256], 256, A;
        HOSTNQN: [u8; 256], 512, A;
    }

    /// Property Get and Property Set.
    property: 64, "Fabrics, Property Get and Set commands" {
        FCTYPE: u8, 4, A;
        ATTRIB: u8, 40, A;
        OFST: u32, 44, A;
        VALUE: u64, 48, A;
    }

    /// Identify Controller, CNS 01h.
    identify_controller: 4096, "Base, Identify Controller data structure" {
        VID: u16, 0, A;
        SSVID: u16, 2, A;
        SN: [u8; 20], 4, A;
        MN: [u8; 40], 24, A;
        FR: [u8; 8], 64, A;
        MDTS: u8, 77, A;
        CNTLID: u16, 78, A;
        VER: u32, 80, A;
        OAES: u32, 92, A;
        CTRATT: u32, 96, A;
        CNTRLTYPE: u8, 111, A;
        CRCAP: u8, 134, A;
        ACL: u8, 258, A;
        AERL: u8, 259, A;
        FRMW: u8, 260, A;
        LPA: u8, 261, A;
        ELPE: u8, 262, A;
        NPSS: u8, 263, A;
        WCTEMP: u16, 266, A;
        CCTEMP: u16, 268, A;
        KAS: u16, 320, A;
        IPMSR: u16, 392, A;
        MSMT: u16, 394, A;
        SQES: u8, 512, A;
        CQES: u8, 513, A;
        MAXCMD: u16, 514, A;
        NN: u32, 516, A;
        ONCS: u16, 520, A;
        VWC: u8, 525, A;
        SGLS: u32, 536, A;
        SUBNQN: [u8; 256], 768, A;
        IOCCSZ: u32, 1792, A;
        IORCSZ: u32, 1796, A;
        ICDOFF: u16, 1800, A;
        FCATT: u8, 1802, A;
        MSDBD: u8, 1803, A;
        PSD0: [u8; 32], 2048, A;
    }

    /// Identify Namespace of the NVM command set, CNS 00h.
    identify_nvm: 4096, "NVM, Identify Namespace data structure" {
        NSZE: u64, 0, A;
        NCAP: u64, 8, A;
        NUSE: u64, 16, A;
        NLBAF: u8, 25, A;
        FLBAS: u8, 26, A;
        NMIC: u8, 30, A;
        MSSRL: u16, 74, A;
        MCL: u32, 76, A;
        MSRC: u8, 80, A;
        NGUID: [u8; 16], 104, A;
        LBAF0: u32, 128, A;
    }

    /// Identify Namespace independent of the command set, CNS 08h: what Linux reads for memory and programs.
    identify_independent: 4096, "Base, I/O Command Set Independent Identify Namespace" {
        NSFEAT: u8, 0, A;
        NMIC: u8, 1, A;
        RESCAP: u8, 2, A;
        FPI: u8, 3, A;
        ANAGRPID: u32, 4, A;
        NSATTR: u8, 8, A;
        NVMSETID: u16, 10, A;
        ENDGID: u16, 12, A;
        NSTAT: u8, 14, A;
        RGRPID: u32, 20, A;
    }

    /// Identify Namespace of subsystem local memory, CNS 05h. Its real layout is not public in any code.
    identify_slm: 4096, "SLM, Identify Namespace data structure" {
        SIZE: u64, 0, D;
    }

    /// Identify Namespace of computational programs, CNS 05h.
    identify_programs: 4096, "CP, Identify Namespace data structure" {
        MAXACT: u16, 0, C;
        MAXMEMRS: u16, 2, C;
        MRSG: u16, 4, C;
        MAXMEMR: u8, 6, C;
        MAXPB: u64, 8, C;
        LPG: u8, 16, C;
    }

    /// A namespace identification descriptor, before its identifier.
    ns_descriptor: 4, "Base, Namespace Identification Descriptor" {
        NIDT: u8, 0, A;
        NIDL: u8, 1, A;
    }

    /// SMART / Health Information, log 02h.
    smart: 512, "Base, SMART / Health Information log" {
        CRITICAL_WARNING: u8, 0, A;
        TEMPERATURE: u16, 1, A;
        AVAILABLE_SPARE: u8, 3, A;
        SPARE_THRESHOLD: u8, 4, A;
        PERCENTAGE_USED: u8, 5, A;
        DATA_UNITS_READ: u64, 32, A;
        DATA_UNITS_WRITTEN: u64, 48, A;
        HOST_READS: u64, 64, A;
        HOST_WRITES: u64, 80, A;
        BUSY_MINUTES: u64, 96, A;
        POWER_CYCLES: u64, 112, A;
        POWER_ON_HOURS: u64, 128, A;
        SENSOR_1: u16, 200, A;
        ENERGY_WH: u64, 232, A;
        INTERVAL_POWER: u32, 240, A;
    }

    /// Power Measurement, log 25h, before its histogram.
    power: 48, "Base, Power Measurement log" {
        PMGN: u8, 1, A;
        PMA: u16, 2, A;
        SZE: u32, 4, A;
        PMC: u32, 8, A;
        NPHD: u16, 12, A;
        PHBS: u16, 26, A;
        AIPWR: u32, 40, A;
        MIPWR: u32, 44, A;
    }

    /// An entry of the Program List, log 82h.
    program: 64, "CP, Program List log" {
        STATE: u8, 0, C;
        PTYPE: u8, 1, C;
        PID: u64, 8, C;
    }

    /// The head of the discovery log, log 70h.
    discovery: 1024, "Fabrics, Discovery log page" {
        GENCTR: u64, 0, A;
        NUMREC: u64, 8, A;
        RECFMT: u16, 16, A;
    }

    /// An entry of the discovery log.
    discovery_entry: 1024, "Fabrics, Discovery log page entry" {
        TRTYPE: u8, 0, A;
        ADRFAM: u8, 1, A;
        SUBTYPE: u8, 2, A;
        TREQ: u8, 3, A;
        PORTID: u16, 4, A;
        CNTLID: u16, 6, A;
        ASQSZ: u16, 8, A;
        TRSVCID: [u8; 32], 32, A;
        SUBNQN: [u8; 256], 256, A;
        TRADDR: [u8; 256], 512, A;
    }

    /// A descriptor of a range of subsystem local memory, for range sets and Execute.
    memory_range: 32, "CP, Memory Range descriptor" {
        MNSID: u32, 0, B;
        LEN: u32, 4, B;
        SB: u64, 8, B;
    }

    /// A source of logical blocks, for Copy to memory: formats 2h and 3h.
    block_source: 32, "NVM, Copy descriptor formats 2h and 3h" {
        SNSID: u32, 0, A;
        SLBA: u64, 8, A;
        NLB: u16, 16, A;
        SOPT: u16, 22, A;
    }

    /// A source of bytes in subsystem local memory: format 4h.
    byte_source: 32, "SLM, Copy descriptor format 4h" {
        SNSID: u32, 0, B;
        SADDR: u64, 8, B;
        NBYTE: u32, 16, B;
        SOPT: u16, 22, B;
    }

    /// The common header of PDUs.
    pdu: 8, "TCP, PDU common header" {
        TYPE: u8, 0, A;
        FLAGS: u8, 1, A;
        HLEN: u8, 2, A;
        PDO: u8, 3, A;
        PLEN: u32, 4, A;
    }

    /// Initialize Connection Request and Response.
    initialize: 128, "TCP, ICReq and ICResp" {
        PFV: u16, 8, A;
        PDA: u8, 10, A;
        DGST: u8, 11, A;
        MAX: u32, 12, A;
    }

    /// Host and controller terminate requests, before the copy of the header at fault.
    terminate: 24, "TCP, Terminate Connection Request" {
        FES: u16, 8, A;
        FEI: u32, 10, A;
    }

    /// H2CData and C2HData, before their data.
    data: 24, "TCP, H2CData and C2HData" {
        CCCID: u16, 8, A;
        TTAG: u16, 10, A;
        DATAO: u32, 12, A;
        DATAL: u32, 16, A;
    }

    /// Ready to Transfer.
    ready: 24, "TCP, R2T" {
        CCCID: u16, 8, A;
        TTAG: u16, 10, A;
        R2TO: u32, 12, A;
        R2TL: u32, 16, A;
    }
}
