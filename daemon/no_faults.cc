// The faults of ruedad: none.
#include "daemon/faults.h"

namespace rueda {

Faults planted_faults() { return {}; }

}  // namespace rueda
