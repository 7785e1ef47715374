// test/nvml_headers.c: compared with NVML's own header, is gpu/cuda/nvml_api.h right? Compiled only where that header
// is installed; there is nothing to run, but test/test_sensors.c says whether it was compared. Our types are renamed
// while they are read, so that both can be seen at once; the list of functions is a macro, and is therefore read with
// NVML's types in it.
#define nvmlReturn_t our_nvmlReturn_t
#define NVML_SUCCESS OUR_SUCCESS
#define NVML_ERROR_NOT_SUPPORTED OUR_ERROR_NOT_SUPPORTED
#define NVML_ERROR_NO_PERMISSION OUR_ERROR_NO_PERMISSION
#define NVML_ERROR_NOT_FOUND OUR_ERROR_NOT_FOUND
#define NVML_ERROR_INSUFFICIENT_SIZE OUR_ERROR_INSUFFICIENT_SIZE
#define NVML_ERROR_DRIVER_NOT_LOADED OUR_ERROR_DRIVER_NOT_LOADED
#define NVML_ERROR_FUNCTION_NOT_FOUND OUR_ERROR_FUNCTION_NOT_FOUND
#define NVML_ERROR_UNKNOWN OUR_ERROR_UNKNOWN
#define nvmlTemperatureSensors_t our_nvmlTemperatureSensors_t
#define NVML_TEMPERATURE_GPU OUR_TEMPERATURE_GPU
#define nvmlClockType_t our_nvmlClockType_t
#define NVML_CLOCK_SM OUR_CLOCK_SM
#define nvmlUtilization_t our_nvmlUtilization_t
#define nvmlMemory_t our_nvmlMemory_t
#define NVML_UUID OUR_UUID
#define nvmlProcessInfo_v1_t our_nvmlProcessInfo_v1_t
#define nvmlProcessInfo_t our_nvmlProcessInfo_t
#define nvmlEnableState_t our_nvmlEnableState_t
#define NVML_FEATURE_DISABLED OUR_FEATURE_DISABLED
#define NVML_FEATURE_ENABLED OUR_FEATURE_ENABLED
#define nvmlIntNvLinkDeviceType_t our_nvmlIntNvLinkDeviceType_t
#define NVML_NVLINK_DEVICE_TYPE_GPU OUR_NVLINK_DEVICE_TYPE_GPU
#define NVML_NVLINK_DEVICE_TYPE_SWITCH OUR_NVLINK_DEVICE_TYPE_SWITCH
#define NVML_NVLINK_DEVICE_TYPE_UNKNOWN OUR_NVLINK_DEVICE_TYPE_UNKNOWN
#define nvmlPciInfo_t our_nvmlPciInfo_t
#define NVML_ERROR_INVALID_ARGUMENT OUR_ERROR_INVALID_ARGUMENT
#include "gpu/cuda/nvml_api.h"
#undef nvmlReturn_t
#undef NVML_SUCCESS
#undef NVML_ERROR_NOT_SUPPORTED
#undef NVML_ERROR_NO_PERMISSION
#undef NVML_ERROR_NOT_FOUND
#undef NVML_ERROR_INSUFFICIENT_SIZE
#undef NVML_ERROR_DRIVER_NOT_LOADED
#undef NVML_ERROR_FUNCTION_NOT_FOUND
#undef NVML_ERROR_UNKNOWN
#undef nvmlTemperatureSensors_t
#undef NVML_TEMPERATURE_GPU
#undef nvmlClockType_t
#undef NVML_CLOCK_SM
#undef nvmlUtilization_t
#undef nvmlMemory_t
#undef NVML_UUID
#undef nvmlProcessInfo_v1_t
#undef nvmlProcessInfo_t
#undef nvmlEnableState_t
#undef NVML_FEATURE_DISABLED
#undef NVML_FEATURE_ENABLED
#undef nvmlIntNvLinkDeviceType_t
#undef NVML_NVLINK_DEVICE_TYPE_GPU
#undef NVML_NVLINK_DEVICE_TYPE_SWITCH
#undef NVML_NVLINK_DEVICE_TYPE_UNKNOWN
#undef nvmlPciInfo_t
#undef NVML_ERROR_INVALID_ARGUMENT

#define NVML_NO_UNVERSIONED_FUNC_DEFS  // else the header renames the first editions to the newest
#include <nvml.h>

#include <stddef.h>

#ifdef nvmlClocksEventReasonNone  // headers before CUDA 12.2 lack some of the calls
#define SAME_VALUE(ours, theirs) _Static_assert((long long)(ours) == (long long)(theirs), #theirs)
#define SAME_NAME(name) SAME_VALUE(OUR_##name, NVML_##name)
SAME_NAME(SUCCESS);
SAME_NAME(ERROR_INVALID_ARGUMENT);
SAME_NAME(ERROR_NOT_SUPPORTED);
SAME_NAME(ERROR_NO_PERMISSION);
SAME_NAME(ERROR_NOT_FOUND);
SAME_NAME(ERROR_INSUFFICIENT_SIZE);
SAME_NAME(ERROR_DRIVER_NOT_LOADED);
SAME_NAME(ERROR_FUNCTION_NOT_FOUND);
SAME_NAME(ERROR_UNKNOWN);
SAME_NAME(TEMPERATURE_GPU);
SAME_NAME(CLOCK_SM);
SAME_NAME(FEATURE_DISABLED);
SAME_NAME(FEATURE_ENABLED);
SAME_NAME(NVLINK_DEVICE_TYPE_GPU);
SAME_NAME(NVLINK_DEVICE_TYPE_SWITCH);
SAME_NAME(NVLINK_DEVICE_TYPE_UNKNOWN);
SAME_VALUE(OUR_UUID, NVML_DEVICE_UUID_V2_BUFFER_SIZE);
SAME_VALUE(NVML_REASON_SW_POWER_CAP, nvmlClocksThrottleReasonSwPowerCap);
SAME_VALUE(NVML_REASON_HW_SLOWDOWN, nvmlClocksThrottleReasonHwSlowdown);
SAME_VALUE(NVML_REASON_SW_THERMAL_SLOWDOWN, nvmlClocksThrottleReasonSwThermalSlowdown);
SAME_VALUE(NVML_REASON_HW_THERMAL_SLOWDOWN, nvmlClocksThrottleReasonHwThermalSlowdown);
SAME_VALUE(NVML_REASON_HW_POWER_BRAKE_SLOWDOWN, nvmlClocksThrottleReasonHwPowerBrakeSlowdown);

#define SAME_TYPE(name) \
    _Static_assert(sizeof(our_##name) == sizeof(name) && _Alignof(our_##name) == _Alignof(name), #name)
SAME_TYPE(nvmlReturn_t);
SAME_TYPE(nvmlTemperatureSensors_t);
SAME_TYPE(nvmlClockType_t);
SAME_TYPE(nvmlUtilization_t);
SAME_TYPE(nvmlMemory_t);
SAME_TYPE(nvmlEnableState_t);
SAME_TYPE(nvmlIntNvLinkDeviceType_t);
SAME_TYPE(nvmlPciInfo_t);
SAME_TYPE(nvmlProcessInfo_v1_t);
SAME_TYPE(nvmlProcessInfo_t);

#define SAME_FIELD(type, field) \
    _Static_assert( \
        offsetof(our_##type, field) == offsetof(type, field) && \
            __builtin_types_compatible_p(__typeof__(((our_##type *)0)->field), __typeof__(((type *)0)->field)), \
        #field)
SAME_FIELD(nvmlUtilization_t, gpu);
SAME_FIELD(nvmlUtilization_t, memory);
SAME_FIELD(nvmlPciInfo_t, busIdLegacy);
SAME_FIELD(nvmlPciInfo_t, domain);
SAME_FIELD(nvmlPciInfo_t, bus);
SAME_FIELD(nvmlPciInfo_t, device);
SAME_FIELD(nvmlPciInfo_t, pciDeviceId);
SAME_FIELD(nvmlPciInfo_t, pciSubSystemId);
SAME_FIELD(nvmlPciInfo_t, busId);
SAME_FIELD(nvmlMemory_t, total);
SAME_FIELD(nvmlMemory_t, free);
SAME_FIELD(nvmlMemory_t, used);
SAME_FIELD(nvmlProcessInfo_v1_t, pid);
SAME_FIELD(nvmlProcessInfo_v1_t, usedGpuMemory);
SAME_FIELD(nvmlProcessInfo_t, pid);
SAME_FIELD(nvmlProcessInfo_t, usedGpuMemory);
SAME_FIELD(nvmlProcessInfo_t, gpuInstanceId);
SAME_FIELD(nvmlProcessInfo_t, computeInstanceId);

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#define SAME_FUNCTION(result, name, arguments) \
    _Static_assert(__builtin_types_compatible_p(result arguments, __typeof__(name)), #name);
NVML_CALLS(SAME_FUNCTION)
NVML_OPTIONAL_CALLS(SAME_FUNCTION)

const bool nvml_headers_compared = true;
#else
const bool nvml_headers_compared = false;
#endif
