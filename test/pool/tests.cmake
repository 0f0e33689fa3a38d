# SPDX-License-Identifier: MIT
if(MALLOW_SANITIZE)
    return()
endif()
mallow_linked(pool.bound "check;plain;native" pool/test_bound.c)
