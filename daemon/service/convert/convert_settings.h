// Conversion between protobuf and the settings that nodes compare (core/model/settings.h). Bounds
// are checked here.
#pragma once

#include "daemon/base/status.h"
#include "daemon/core/model/settings.h"
#include "rueda/v1/control.pb.h"

namespace rueda::service {

using SettingsField = google::protobuf::RepeatedPtrField<v1::Setting>;

void fill_settings(const core::Settings& from, SettingsField& to);
Result<core::Settings> read_settings(const SettingsField& from);

}  // namespace rueda::service
