// SPDX-License-Identifier: MIT
// The one file of a program that includes the header: what api.new_delete_header tests.
#include <mallow/new_delete.h>
