#ifndef HA_CUDA_EMULATION_CUDA_H
#define HA_CUDA_EMULATION_CUDA_H

/* The few names of the driver API that the CUDA device uses; see cuda_runtime_api.h. */

#include <stdint.h>

typedef uint32_t cuuint32_t;
typedef unsigned long long CUdeviceptr;
typedef struct CUstream_st *CUstream;

/* the other codes, which are the runtime's, come as they are */
typedef enum cudaError_enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_UNKNOWN = 999
} CUresult;

enum { CU_STREAM_WAIT_VALUE_GEQ = 0 }; /* cyclic: (int32_t)(*address - value) >= 0 */
enum { CU_STREAM_WRITE_VALUE_DEFAULT = 0 };

#endif
