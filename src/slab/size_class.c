// SPDX-License-Identifier: MIT
// Size classes: see size_class.h.
#include "slab/size_class.h"

#define LINEAR_BYTES(index) (((index) + 1U) << MALLOW_GRANULE_SHIFT)
#define ABOVE(index) ((index) - SIZE_CLASS_LINEAR_COUNT)
#define STEPS(index) (MALLOW_CLASS_STEPS + 1U + (ABOVE(index) & SIZE_CLASS_STEP_MASK))
#define SHIFT(index) (MALLOW_GRANULE_SHIFT + (ABOVE(index) >> SIZE_CLASS_STEP_BITS))
// The shift is masked for the places that no class has.
#define BYTES(index)                                                                               \
    ((index) >= MALLOW_CLASS_COUNT        ? 0                                                      \
     : (index) < SIZE_CLASS_LINEAR_COUNT ? LINEAR_BYTES(index)                                     \
                                         : STEPS(index) << (SHIFT(index) & 31U))
#define BYTES_4(index) BYTES(index), BYTES((index) + 1U), BYTES((index) + 2U), BYTES((index) + 3U)
#define BYTES_16(index)                                                                            \
    BYTES_4(index), BYTES_4((index) + 4U), BYTES_4((index) + 8U), BYTES_4((index) + 12U)

MALLOW_SHARED_DATA const uint32_t size_class_table[SIZE_CLASS_TABLE_COUNT] = {
    BYTES_16(0U), BYTES_16(16U), BYTES_16(32U), BYTES_16(48U), BYTES_16(64U),
};
