// SPDX-License-Identifier: MIT
// A plugin that has the whole of libmallow.a linked in, as one does that brings its allocator along.
#include <mallow/mallow.h>

int whole_plugin_version(void);

int whole_plugin_version(void)
{
    return mw_version();
}
