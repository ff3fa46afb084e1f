// For the tests of this folder.
#pragma once

#include <gtest/gtest.h>

#include "core/error.h"

namespace rubato::cli {

// Runs the function, which must throw a usage Error, and returns that.
template <class Function>
Error usage_error(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::kUsage) << error.message;
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(ErrorCode::kFailed, "nothing was thrown");
}

}  // namespace rubato::cli
