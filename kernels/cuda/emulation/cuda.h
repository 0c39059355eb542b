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

typedef enum CUstreamBatchMemOpType_enum {
    CU_STREAM_MEM_OP_WAIT_VALUE_32 = 1,
    CU_STREAM_MEM_OP_WRITE_VALUE_32 = 2
} CUstreamBatchMemOpType;
typedef union CUstreamBatchMemOpParams_union {
    CUstreamBatchMemOpType operation;
    struct {
        CUstreamBatchMemOpType operation;
        CUdeviceptr address;
        cuuint32_t value;
        unsigned flags;
        CUdeviceptr alias;
    } waitValue, writeValue;
    uint64_t pad[6];
} CUstreamBatchMemOpParams;

enum { CU_STREAM_WAIT_VALUE_GEQ = 0 }; /* cyclic: (int32_t)(*address - value) >= 0 */
enum { CU_STREAM_WRITE_VALUE_DEFAULT = 0 };

#endif
