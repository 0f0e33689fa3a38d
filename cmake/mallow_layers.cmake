# SPDX-License-Identifier: MIT
# Reads src/LAYERS and gives the build what it says.
#
#   MALLOW_LAYERS                         the layers, bottom to top
#   mallow_layer_closure(out layer)       the layer and everything it may reach, for link lines
#   mallow_collect_targets(out dir...)    every target defined in these source directories and below

file(STRINGS ${PROJECT_SOURCE_DIR}/src/LAYERS layer_lines REGEX "^[a-z_]+ *:")
set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
             ${PROJECT_SOURCE_DIR}/src/LAYERS)
set(MALLOW_LAYERS)
foreach(line IN LISTS layer_lines)
    string(REGEX MATCH "^([a-z_]+) *:(.*)$" matched "${line}")
    set(layer ${CMAKE_MATCH_1})
    separate_arguments(uses UNIX_COMMAND "${CMAKE_MATCH_2}")
    list(APPEND MALLOW_LAYERS ${layer})
    set(closure ${layer})
    foreach(used IN LISTS uses)
        if(NOT used IN_LIST MALLOW_LAYERS)
            message(FATAL_ERROR "src/LAYERS: ${layer} uses ${used}, which does not stand below it")
        endif()
        list(APPEND closure ${MALLOW_LAYER_CLOSURE_${used}})
    endforeach()
    list(REMOVE_DUPLICATES closure)
    set(MALLOW_LAYER_CLOSURE_${layer} ${closure})
endforeach()

function(mallow_layer_closure out layer)
    set(${out} ${MALLOW_LAYER_CLOSURE_${layer}} PARENT_SCOPE)
endfunction()

function(mallow_collect_targets out)
    set(found)
    set(directories ${ARGN})
    while(directories)
        list(POP_FRONT directories directory)
        get_filename_component(directory ${directory} ABSOLUTE BASE_DIR ${PROJECT_SOURCE_DIR})
        if(EXISTS ${directory}/CMakeLists.txt)
            get_property(targets DIRECTORY ${directory} PROPERTY BUILDSYSTEM_TARGETS)
            get_property(below DIRECTORY ${directory} PROPERTY SUBDIRECTORIES)
            list(APPEND found ${targets})
            list(APPEND directories ${below})
        endif()
    endwhile()
    list(REMOVE_DUPLICATES found)
    set(${out} ${found} PARENT_SCOPE)
endfunction()
