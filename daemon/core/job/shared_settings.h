// The settings of a job that its nodes compare before they begin (model/settings.h).
#pragma once

#include "daemon/core/job/job_options.h"
#include "daemon/core/model/settings.h"

namespace rueda::core {

Settings shared_settings(const JobOptions& options);

}  // namespace rueda::core
