# SPDX-License-Identifier: MIT
# Random operations against a naive model: the Rust crate finds and shrinks, the C program runs far.
mallow_both(model.long_run check model/long_run.c)

find_program(MALLOW_CARGO cargo HINTS $ENV{HOME}/.cargo/bin)
if(MALLOW_CARGO AND NOT MALLOW_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
    mallow_add(model.proptest "check;plain;native"
               ${MALLOW_CARGO} test --release --quiet
               --manifest-path ${CMAKE_CURRENT_SOURCE_DIR}/model/Cargo.toml
               --target-dir ${PROJECT_BINARY_DIR}/cargo-model)
    set_tests_properties(model.proptest PROPERTIES TIMEOUT 600 ENVIRONMENT
                         "TEST_LIBRARY_DIR=$<TARGET_FILE_DIR:mallow>")
endif()
