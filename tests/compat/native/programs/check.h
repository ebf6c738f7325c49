// What every program here uses: CHECK ends the program with the line of a false condition, CUDA with that of a failing call, EXPECT with another result.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define CHECK(condition)                                                             \
    do {                                                                             \
        if (!(condition)) {                                                          \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

#define EXPECT(result, call)                                                                                                            \
    do {                                                                                                                                \
        cudaError_t got_ = (call);                                                                                                      \
        if (got_ != (result)) {                                                                                                         \
            fprintf(stderr, "%s:%d: %s gave %s, not %s\n", __FILE__, __LINE__, #call, cudaGetErrorName(got_), cudaGetErrorName(result)); \
            exit(1);                                                                                                                    \
        }                                                                                                                               \
    } while (0)

// lanGPU posts what returns nothing but an error: the error may come at the next call that waits.
#define REFUSED(result, call)                                                                                                           \
    do {                                                                                                                                \
        cudaError_t now_ = (call);                                                                                                      \
        if (now_ == cudaSuccess) now_ = cudaDeviceSynchronize();                                                                        \
        (void)cudaGetLastError();                                                                                                       \
        if (now_ != (result)) {                                                                                                         \
            fprintf(stderr, "%s:%d: %s gave %s, not %s\n", __FILE__, __LINE__, #call, cudaGetErrorName(now_), cudaGetErrorName(result)); \
            exit(1);                                                                                                                    \
        }                                                                                                                               \
    } while (0)

#define CUDA(call) EXPECT(cudaSuccess, call)

#ifdef __cuda_cuda_h__
#define DRIVER_EXPECT(result, call)                                                                                  \
    do {                                                                                                             \
        CUresult got_ = (call);                                                                                      \
        if (got_ != (result)) {                                                                                      \
            fprintf(stderr, "%s:%d: %s gave %d, not %d\n", __FILE__, __LINE__, #call, (int)got_, (int)(result));     \
            exit(1);                                                                                                 \
        }                                                                                                            \
    } while (0)
#define DRIVER(call) DRIVER_EXPECT(CUDA_SUCCESS, call)
#endif
