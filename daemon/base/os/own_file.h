// Opens and writes files that a user names, where others may write as well (/tmp): links that they
// have put there are not followed.
#pragma once

#include <string>
#include <string_view>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"

namespace rueda {

// Opens the file for writing, empty; it is made if there is none. A path through a symbolic link
// that belongs to neither this user nor root is refused.
Result<UniqueFd> open_own_file(const std::string& path);

// Makes a file that is not there yet, for writing. Returns an error if anything has that name.
Result<UniqueFd> open_new_file(const std::string& path);

// Opens the file as open_own_file() does, and writes the whole text.
Status write_own_file(const std::string& path, std::string_view text);

// Replaces the file by one with this text, or leaves it as it was. The text is first written to a
// file beside it, under a name that nobody knows before.
Status replace_file(const std::string& path, std::string_view text);

}  // namespace rueda
