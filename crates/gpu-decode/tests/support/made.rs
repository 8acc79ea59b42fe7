//! JPEGs of any size, sampling and restart interval, of coefficients that look random: what no
//! fixture has. They bring no Huffman tables, which means the standard's.

/// What to make.
#[derive(Debug, Clone, Copy)]
pub struct Made {
    pub size: [u16; 2],
    /// Blocks of an MCU, across and down, by component.
    pub factors: &'static [[u8; 2]],
    pub restart_interval: u16,
    /// All steps of the quantisation tables.
    pub step: u8,
}

/// Codes of T.81's Annex K by size of the difference, 0 to 6: for brightness, for colour.
const DC: [[&str; 7]; 2] = [
    ["00", "010", "011", "100", "101", "110", "1110"],
    ["00", "01", "10", "110", "1110", "11110", "111110"],
];

/// Codes of some coefficients: zeros before it, size, code. The last is a long one.
const AC: [[(u32, u32, &str); 4]; 2] = [
    [(0, 1, "00"), (0, 2, "01"), (1, 1, "1100"), (15, 1, "1111111111110101")],
    [(0, 1, "01"), (0, 2, "100"), (1, 1, "1011"), (2, 1, "11010")],
];
const END: [&str; 2] = ["1010", "00"];

struct Writer {
    bytes: Vec<u8>,
    bits: Vec<bool>,
    random: u64,
}

impl Writer {
    fn below(&mut self, n: u32) -> u32 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(9);
        u32::try_from(self.random >> 33).unwrap() % n
    }

    fn code(&mut self, code: &str) {
        self.bits.extend(code.bytes().map(|digit| digit == b'1'));
    }

    /// A value of so many bits.
    fn value(&mut self, size: u32) {
        for _ in 0..size {
            let bit = self.below(2) == 1;
            self.bits.push(bit);
        }
    }

    fn block(&mut self, kind: usize) {
        let size = self.below(7);
        self.code(DC[kind][size as usize]);
        self.value(size);
        let mut at = 1;
        for _ in 0..self.below(12) {
            let (run, size, code) = AC[kind][self.below(64).min(3) as usize % 4];
            if at + run > 62 {
                break;
            }
            self.code(code);
            self.value(size);
            at += run + 1;
        }
        self.code(END[kind]);
    }

    /// Fills the last byte with ones, and stuffs what is FF.
    fn flush(&mut self) {
        while !self.bits.len().is_multiple_of(8) {
            self.bits.push(true);
        }
        for byte in std::mem::take(&mut self.bits).chunks(8) {
            let byte = byte.iter().fold(0, |byte, &bit| byte << 1 | u8::from(bit));
            self.bytes.push(byte);
            if byte == 0xff {
                self.bytes.push(0);
            }
        }
    }

    fn segment(&mut self, marker: u8, contents: &[u8]) {
        self.bytes.extend([0xff, marker]);
        self.bytes.extend(u16::try_from(contents.len() + 2).unwrap().to_be_bytes());
        self.bytes.extend(contents);
    }
}

impl Made {
    /// The file.
    pub fn file(self) -> Vec<u8> {
        let Self { size: [height, width], factors, restart_interval, step } = self;
        let random = u64::from(height) * 1_000_003 + u64::from(width);
        let mut w = Writer { bytes: vec![0xff, 0xd8], bits: Vec::new(), random };
        for table in 0..2 {
            w.segment(0xdb, &[&[table][..], &[step; 64]].concat());
        }
        let n = u8::try_from(factors.len()).unwrap();
        let mut frame = vec![8];
        frame.extend(height.to_be_bytes());
        frame.extend(width.to_be_bytes());
        frame.push(n);
        let mut scan = vec![n];
        for (id, [h, v]) in (0..).zip(factors) {
            frame.extend([id, h << 4 | v, id.min(1)]);
            scan.extend([id, id.min(1) * 0x11]);
        }
        scan.extend([0, 63, 0]);
        w.segment(0xc0, &frame);
        w.segment(0xdd, &restart_interval.to_be_bytes());
        w.segment(0xda, &scan);
        let most =
            |nth: usize| factors.iter().map(|f| usize::from(f[nth])).max().unwrap();
        let lone = factors.len() == 1;
        let [h, v] = if lone { [1, 1] } else { [most(0), most(1)] };
        let n_mcus =
            usize::from(width).div_ceil(8 * h) * usize::from(height).div_ceil(8 * v);
        for mcu in 0..n_mcus {
            let interval = usize::from(restart_interval);
            if interval > 0 && mcu > 0 && mcu % interval == 0 {
                w.flush();
                let number = u8::try_from((mcu / interval - 1) % 8).unwrap();
                w.bytes.extend([0xff, 0xd0 + number]);
            }
            for (nth, [h, v]) in factors.iter().enumerate() {
                let n_blocks = if lone { 1 } else { h * v };
                (0..n_blocks).for_each(|_| w.block(nth.min(1)));
            }
        }
        w.flush();
        w.bytes.extend([0xff, 0xd9]);
        w.bytes
    }
}

const Y420: &[[u8; 2]] = &[[2, 2], [1, 1], [1, 1]];
const Y422: &[[u8; 2]] = &[[2, 1], [1, 1], [1, 1]];
const Y440: &[[u8; 2]] = &[[1, 2], [1, 1], [1, 1]];
const Y444: &[[u8; 2]] = &[[1, 1], [1, 1], [1, 1]];
const Y411: &[[u8; 2]] = &[[4, 1], [1, 1], [1, 1]];
const Y414: &[[u8; 2]] = &[[1, 4], [1, 1], [1, 1]];
const MIXED: &[[u8; 2]] = &[[2, 2], [2, 1], [1, 2]];
const GREY: &[[u8; 2]] = &[[1, 1]];

/// Odd ones, by name.
pub fn made() -> Vec<(String, Vec<u8>)> {
    let sizes = [
        ([1, 1], 0, 255),
        ([1, 3], 1, 40),
        ([5, 300], 5, 7),
        ([300, 5], 1, 30),
        ([37, 61], 3, 255),
        ([64, 64], 8, 1),
    ];
    let all = [Y420, Y422, Y440, Y444, Y411, Y414, MIXED, GREY];
    let small = all.iter().flat_map(|&factors| {
        sizes.map(|(size, restart_interval, step)| Made {
            size,
            factors,
            restart_interval,
            step,
        })
    });
    // Wider than shared memory holds, and groups longer than it holds.
    let wide = [Y420, Y422, Y444].map(|factors| Made {
        size: [33, 7000],
        factors,
        restart_interval: 0,
        step: 20,
    });
    small.chain(wide).map(|made| (format!("{made:?}"), made.file())).collect()
}
