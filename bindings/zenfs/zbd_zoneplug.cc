// ZenFS's zbd_zenfs.cc, which makes the back ends, with ours in the place of the one for block devices. The
// class is exchanged by its name, after its declaration was read.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "zonefs_zenfs.h"
#include "zoneplug_backend.h"

#define ZbdlibBackend ZoneplugBackend
#include "zbd_zenfs.cc"
