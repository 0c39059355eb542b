#include <cuda_runtime_api.h>

static const struct {
    cudaError_t code;
    const char *name, *text;
} errors[] = {
#define E(name, text)     \
    {                     \
        name, #name, text \
    }
    E(cudaSuccess, "no error"),
    E(cudaErrorInvalidValue, "an argument is not valid"),
    E(cudaErrorMemoryAllocation, "out of memory"),
    E(cudaErrorInitializationError, "the runtime could not be initialised"),
    E(cudaErrorCudartUnloading, "the runtime is being unloaded"),
    E(cudaErrorInvalidConfiguration, "the launch's grid or block is not valid"),
    E(cudaErrorInvalidPitchValue, "a pitch is not valid"),
    E(cudaErrorInvalidHostPointer, "not a host pointer"),
    E(cudaErrorInvalidDevicePointer, "not a device pointer"),
    E(cudaErrorInvalidMemcpyDirection, "there is no such direction of copies"),
    E(cudaErrorStubLibrary, "the driver is a stub"),
    E(cudaErrorInsufficientDriver, "no driver, or one that is older than the runtime"),
    E(cudaErrorCallRequiresNewerDriver, "the call needs a newer driver"),
    E(cudaErrorDevicesUnavailable, "devices are busy or unavailable"),
    E(cudaErrorInvalidDeviceFunction, "not a function of the device"),
    E(cudaErrorNoDevice, "no CUDA device"),
    E(cudaErrorInvalidDevice, "there is no device of that number"),
    E(cudaErrorDeviceUninitialized, "the device has no context"),
    E(cudaErrorNoKernelImageForDevice, "no kernel code for this device"),
    E(cudaErrorECCUncorrectable, "an uncorrectable memory error"),
    E(cudaErrorUnsupportedPtxVersion, "the PTX is newer than the driver"),
    E(cudaErrorOperatingSystem, "a call of the operating system failed"),
    E(cudaErrorInvalidResourceHandle, "not a live handle, or one of another device"),
    E(cudaErrorIllegalState, "not in a state for this call"),
    E(cudaErrorSymbolNotFound, "there is no such symbol"),
    E(cudaErrorNotReady, "not done yet"),
    E(cudaErrorIllegalAddress, "the device accessed memory that it may not"),
    E(cudaErrorLaunchOutOfResources, "the launch needs more than the device has"),
    E(cudaErrorLaunchTimeout, "a launch took too long and was ended"),
    E(cudaErrorContextIsDestroyed, "the context is destroyed"),
    E(cudaErrorAssert, "an assertion of a kernel failed"),
    E(cudaErrorHostMemoryAlreadyRegistered, "part of this host memory is registered already"),
    E(cudaErrorHostMemoryNotRegistered, "this host memory is not registered"),
    E(cudaErrorIllegalInstruction, "the device met an instruction that is none"),
    E(cudaErrorMisalignedAddress, "the device accessed a misaligned address"),
    E(cudaErrorLaunchFailure, "the device failed while it ran a kernel"),
    E(cudaErrorNotPermitted, "not permitted here"),
    E(cudaErrorNotSupported, "not supported"),
    E(cudaErrorSystemNotReady, "the system is not ready for CUDA"),
    E(cudaErrorSystemDriverMismatch, "driver and kernel module do not match"),
    E(cudaErrorStreamCaptureUnsupported, "not permitted while a stream is capturing"),
    E(cudaErrorStreamCaptureInvalidated, "an earlier error ended the capture"),
    E(cudaErrorStreamCaptureMerge, "it would join two captures"),
    E(cudaErrorStreamCaptureUnmatched, "the capture was not begun on this stream"),
    E(cudaErrorStreamCaptureUnjoined, "a stream of the capture was not joined"),
    E(cudaErrorStreamCaptureIsolation, "what is captured would depend on what is not"),
    E(cudaErrorStreamCaptureImplicit, "it would depend on the default stream"),
    E(cudaErrorCapturedEvent, "the event was last recorded in a capture"),
    E(cudaErrorStreamCaptureWrongThread, "the capture was begun by another thread"),
    E(cudaErrorTimeout, "waited too long"),
    E(cudaErrorUnknown, "unknown error"),
#undef E
};

enum { ERRORS = sizeof errors / sizeof *errors };

const char *cudaGetErrorName(cudaError_t error)
{
    for (unsigned i = 0; i < ERRORS; i++)
        if (errors[i].code == error) return errors[i].name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (unsigned i = 0; i < ERRORS; i++)
        if (errors[i].code == error) return errors[i].text;
    return "unrecognized error code";
}
