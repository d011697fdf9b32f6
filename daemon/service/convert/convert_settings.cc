#include "daemon/service/convert/convert_settings.h"

#include "daemon/base/one_line.h"
#include "daemon/service/convert/convert_plan.h"

namespace rueda::service {
namespace {

constexpr int kMostSettings = 64;
constexpr size_t kMostSettingBytes = 128;

}  // namespace

void fill_settings(const core::Settings& from, SettingsField& to) {
  for (const core::Setting& setting : from) {
    v1::Setting& added = *to.Add();
    added.set_name(setting.name);
    added.set_value(setting.value);
  }
}

// Errors show them to people.
Result<core::Settings> read_settings(const SettingsField& from) {
  if (from.size() > kMostSettings) return broken("more settings than a job has");
  core::Settings to;
  for (const v1::Setting& setting : from) {
    to.push_back({one_line(setting.name(), kMostSettingBytes),
                  one_line(setting.value(), kMostSettingBytes)});
  }
  return to;
}

}  // namespace rueda::service
