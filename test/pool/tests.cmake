# SPDX-License-Identifier: MIT
mallow_linked(pool.remote check pool/test_remote.c)
if(MALLOW_SANITIZE)
    return()
endif()
mallow_linked(pool.bound "check;plain;native" pool/test_bound.c)
mallow_linked(pool.kernel "check;plain;native" pool/test_kernel.c)
