// SPDX-License-Identifier: MIT
//! Element types of slices.
use crate::ffi;
use std::os::raw::c_int;

/// The element types of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    F32,
    F16,
    Bf16,
    Int8,
    E4m3,
}

impl Dtype {
    pub(crate) fn raw(self) -> c_int {
        match self {
            Dtype::F32 => ffi::PKV_F32,
            Dtype::F16 => ffi::PKV_F16,
            Dtype::Bf16 => ffi::PKV_BF16,
            Dtype::Int8 => ffi::PKV_INT8,
            Dtype::E4m3 => ffi::PKV_E4M3,
        }
    }
}

/// The bits of an IEEE binary16 number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct F16(pub u16);

/// The upper half of an f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Bf16(pub u16);

/// The bits of a number of 8 bits, 4 of them exponent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct E4m3(pub u8);

mod sealed {
    pub trait Sealed {}
}

/// What a cache may hold.
pub trait CacheElement: sealed::Sealed + Copy + Send + Sync {
    const DTYPE: Dtype;
}

/// What a state may be seen as: numbers of which every pattern of bits is one.
pub trait StateElement: sealed::Sealed + Copy + Send + Sync {}

/// What queries, new keys and values, and outputs may be.
pub trait Activation: CacheElement {}

macro_rules! elements {
    ($($type:ty = $dtype:ident),*) => {
        $(impl sealed::Sealed for $type {}
        impl CacheElement for $type {
            const DTYPE: Dtype = Dtype::$dtype;
        })*
    };
}

elements!(f32 = F32, F16 = F16, Bf16 = Bf16, i8 = Int8, E4m3 = E4m3);
impl sealed::Sealed for u8 {}
impl sealed::Sealed for f64 {}
impl StateElement for u8 {}
impl StateElement for f64 {}
impl<T: CacheElement> StateElement for T {}
impl Activation for f32 {}
impl Activation for F16 {}
impl Activation for Bf16 {}
