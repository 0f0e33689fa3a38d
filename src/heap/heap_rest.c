// SPDX-License-Identifier: MIT
// Rest: see heap_rest.h.
#include "heap/heap_rest.h"

MALLOW_INTERNAL bool heap_rest_class(struct heap *heap, unsigned class_index) {
    struct slab *const slab = heap_current_slab(heap, class_index);
    if (slab == NULL || class_index >= MALLOW_DIRECT_CLASS_COUNT) {
        return false;
    }
    struct heap_resting *resting = heap->resting;
    if (resting == NULL) {
        resting = meta_take(heap->shared->meta, sizeof *resting);
        if (resting == NULL) {
            return false;
        }
        __atomic_store_n(&heap->resting, resting, __ATOMIC_RELEASE);
    }
    // First the place where who finds none in direct[] looks.
    __atomic_store_n(&resting->slabs[class_index], slab, __ATOMIC_RELEASE);
    heap_hide_current(heap, class_index);
    return true;
}

MALLOW_INTERNAL MALLOW_COLD void heap_wake_class(struct heap *heap, unsigned class_index) {
    heap_show_current(heap, class_index, heap_current_slab(heap, class_index));
}
