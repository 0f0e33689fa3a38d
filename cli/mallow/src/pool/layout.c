// SPDX-License-Identifier: MIT
// What the tool's tests compare its view of <mallow/pool.h> with (ffi.rs).
#include <mallow/pool.h>

#include <stddef.h>

extern const size_t mallow_tool_layout[14];
const size_t mallow_tool_layout[14] = {
    sizeof(struct mw_pool_class),
    offsetof(struct mw_pool_class, share_ppm),
    sizeof(struct mw_pool_config),
    offsetof(struct mw_pool_config, memory),
    offsetof(struct mw_pool_config, fallback),
    offsetof(struct mw_pool_config, check_owner),
    sizeof(struct mw_pool_planned),
    offsetof(struct mw_pool_planned, alloc_instructions),
    offsetof(struct mw_pool_planned, remote_instructions),
    sizeof(struct mw_pool_class_plan),
    offsetof(struct mw_pool_class_plan, metadata_bytes),
    sizeof(struct mw_pool_preset),
    MW_POOL_CLASSES_MAX,
    MW_POOL_WHOLE,
};
