//! The learnt policies of `AutoAugment` (arXiv 1805.09501, tables 7 to 9, as in torchvision): 25 pairs
//! of (op, probability in tenths, strength out of ten).

use super::Kind;

/// One op of a pair.
type Rule = (Kind, u8, u8);

/// Learnt on ImageNet.
pub(super) const IMAGENET: [[Rule; 2]; 25] = [
    [(Kind::Posterize, 4, 8), (Kind::Rotate, 6, 9)],
    [(Kind::Solarize, 6, 5), (Kind::AutoContrast, 6, 0)],
    [(Kind::Equalize, 8, 0), (Kind::Equalize, 6, 0)],
    [(Kind::Posterize, 6, 7), (Kind::Posterize, 6, 6)],
    [(Kind::Equalize, 4, 0), (Kind::Solarize, 2, 4)],
    [(Kind::Equalize, 4, 0), (Kind::Rotate, 8, 8)],
    [(Kind::Solarize, 6, 3), (Kind::Equalize, 6, 0)],
    [(Kind::Posterize, 8, 5), (Kind::Equalize, 10, 0)],
    [(Kind::Rotate, 2, 3), (Kind::Solarize, 6, 8)],
    [(Kind::Equalize, 6, 0), (Kind::Posterize, 4, 6)],
    [(Kind::Rotate, 8, 8), (Kind::Color, 4, 0)],
    [(Kind::Rotate, 4, 9), (Kind::Equalize, 6, 0)],
    [(Kind::Equalize, 0, 0), (Kind::Equalize, 8, 0)],
    [(Kind::Invert, 6, 0), (Kind::Equalize, 10, 0)],
    [(Kind::Color, 6, 4), (Kind::Contrast, 10, 8)],
    [(Kind::Rotate, 8, 8), (Kind::Color, 10, 2)],
    [(Kind::Color, 8, 8), (Kind::Solarize, 8, 7)],
    [(Kind::Sharpness, 4, 7), (Kind::Invert, 6, 0)],
    [(Kind::ShearX, 6, 5), (Kind::Equalize, 10, 0)],
    [(Kind::Color, 4, 0), (Kind::Equalize, 6, 0)],
    [(Kind::Equalize, 4, 0), (Kind::Solarize, 2, 4)],
    [(Kind::Solarize, 6, 5), (Kind::AutoContrast, 6, 0)],
    [(Kind::Invert, 6, 0), (Kind::Equalize, 10, 0)],
    [(Kind::Color, 6, 4), (Kind::Contrast, 10, 8)],
    [(Kind::Equalize, 8, 0), (Kind::Equalize, 6, 0)],
];

/// Learnt on CIFAR-10.
pub(super) const CIFAR10: [[Rule; 2]; 25] = [
    [(Kind::Invert, 1, 0), (Kind::Contrast, 2, 6)],
    [(Kind::Rotate, 7, 2), (Kind::TranslateX, 3, 9)],
    [(Kind::Sharpness, 8, 1), (Kind::Sharpness, 9, 3)],
    [(Kind::ShearY, 5, 8), (Kind::TranslateY, 7, 9)],
    [(Kind::AutoContrast, 5, 0), (Kind::Equalize, 9, 0)],
    [(Kind::ShearY, 2, 7), (Kind::Posterize, 3, 7)],
    [(Kind::Color, 4, 3), (Kind::Brightness, 6, 7)],
    [(Kind::Sharpness, 3, 9), (Kind::Brightness, 7, 9)],
    [(Kind::Equalize, 6, 0), (Kind::Equalize, 5, 0)],
    [(Kind::Contrast, 6, 7), (Kind::Sharpness, 6, 5)],
    [(Kind::Color, 7, 7), (Kind::TranslateX, 5, 8)],
    [(Kind::Equalize, 3, 0), (Kind::AutoContrast, 4, 0)],
    [(Kind::TranslateY, 4, 3), (Kind::Sharpness, 2, 6)],
    [(Kind::Brightness, 9, 6), (Kind::Color, 2, 8)],
    [(Kind::Solarize, 5, 2), (Kind::Invert, 0, 0)],
    [(Kind::Equalize, 2, 0), (Kind::AutoContrast, 6, 0)],
    [(Kind::Equalize, 2, 0), (Kind::Equalize, 6, 0)],
    [(Kind::Color, 9, 9), (Kind::Equalize, 6, 0)],
    [(Kind::AutoContrast, 8, 0), (Kind::Solarize, 2, 8)],
    [(Kind::Brightness, 1, 3), (Kind::Color, 7, 0)],
    [(Kind::Solarize, 4, 5), (Kind::AutoContrast, 9, 0)],
    [(Kind::TranslateY, 9, 9), (Kind::TranslateY, 7, 9)],
    [(Kind::AutoContrast, 9, 0), (Kind::Solarize, 8, 3)],
    [(Kind::Equalize, 8, 0), (Kind::Invert, 1, 0)],
    [(Kind::TranslateY, 7, 9), (Kind::AutoContrast, 9, 0)],
];

/// Learnt on SVHN.
pub(super) const SVHN: [[Rule; 2]; 25] = [
    [(Kind::ShearX, 9, 4), (Kind::Invert, 2, 0)],
    [(Kind::ShearY, 9, 8), (Kind::Invert, 7, 0)],
    [(Kind::Equalize, 6, 0), (Kind::Solarize, 6, 6)],
    [(Kind::Invert, 9, 0), (Kind::Equalize, 6, 0)],
    [(Kind::Equalize, 6, 0), (Kind::Rotate, 9, 3)],
    [(Kind::ShearX, 9, 4), (Kind::AutoContrast, 8, 0)],
    [(Kind::ShearY, 9, 8), (Kind::Invert, 4, 0)],
    [(Kind::ShearY, 9, 5), (Kind::Solarize, 2, 6)],
    [(Kind::Invert, 9, 0), (Kind::AutoContrast, 8, 0)],
    [(Kind::Equalize, 6, 0), (Kind::Rotate, 9, 3)],
    [(Kind::ShearX, 9, 4), (Kind::Solarize, 3, 3)],
    [(Kind::ShearY, 8, 8), (Kind::Invert, 7, 0)],
    [(Kind::Equalize, 9, 0), (Kind::TranslateY, 6, 6)],
    [(Kind::Invert, 9, 0), (Kind::Equalize, 6, 0)],
    [(Kind::Contrast, 3, 3), (Kind::Rotate, 8, 4)],
    [(Kind::Invert, 8, 0), (Kind::TranslateY, 0, 2)],
    [(Kind::ShearY, 7, 6), (Kind::Solarize, 4, 8)],
    [(Kind::Invert, 6, 0), (Kind::Rotate, 8, 4)],
    [(Kind::ShearY, 3, 7), (Kind::TranslateX, 9, 3)],
    [(Kind::ShearX, 1, 6), (Kind::Invert, 6, 0)],
    [(Kind::Solarize, 7, 2), (Kind::TranslateY, 6, 7)],
    [(Kind::ShearY, 8, 4), (Kind::Invert, 8, 0)],
    [(Kind::ShearX, 7, 9), (Kind::TranslateY, 8, 3)],
    [(Kind::ShearY, 8, 5), (Kind::AutoContrast, 7, 0)],
    [(Kind::ShearX, 7, 2), (Kind::Invert, 1, 0)],
];
