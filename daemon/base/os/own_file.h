// Files that a user names and a program writes, where others may write as well (/tmp): what they
// have put there is not followed.
#pragma once

#include <string>
#include <string_view>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"

namespace rueda {

// Made where there is none, emptied, for writing. Refused through a symbolic link that belongs to
// neither this user nor root.
Result<UniqueFd> open_own_file(const std::string& path);

// Makes a file that is not there yet, for writing. Refused if anything has that name.
Result<UniqueFd> open_new_file(const std::string& path);

// Opens the file as open_own_file() does, and writes the whole text.
Status write_own_file(const std::string& path, std::string_view text);

// All of it at once, or as it was: written beside under a name that nobody knows before.
Status replace_file(const std::string& path, std::string_view text);

}  // namespace rueda
