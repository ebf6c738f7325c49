// cuLibrary*, cuKernel*, cuModule* with images that are good, bad and wrong; the session lives on after each.
// build: -lcuda
#include <cuda.h>
#include "check.h"
#include <cstring>
#include <string>
#include <vector>

static const char PTX[] = R"(
.version 7.0
.target sm_52
.address_size 64
.visible .global .align 4 .u32 counter = 5;
.visible .entry bump(.param .u64 at, .param .u32 by)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [at];
    ld.param.u32 %r1, [by];
    ld.global.u32 %r2, [%rd1];
    ld.global.u32 %r3, [counter];
    add.u32 %r2, %r2, %r1;
    add.u32 %r2, %r2, %r3;
    st.global.u32 [%rd1], %r2;
    ret;
}
)";

static CUdeviceptr memory;

static void works(CUfunction f, unsigned add)
{
    unsigned by = 2, h = 1;
    DRIVER(cuMemcpyHtoD(memory, &h, 4));
    void *args[] = {&memory, &by};
    DRIVER(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, nullptr, args, nullptr));
    DRIVER(cuMemcpyDtoH(&h, memory, 4));
    CHECK(h == 3 + add);
}

int main()
{
    DRIVER_EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuCtxSynchronize());
    DRIVER(cuInit(0));
    CUdevice device;
    CUcontext context;
    DRIVER(cuDeviceGet(&device, 0));
    DRIVER(cuDevicePrimaryCtxRetain(&context, device));
    CUmodule module, other;
    DRIVER_EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuModuleLoadData(&module, PTX));
    DRIVER(cuCtxSetCurrent(context));
    DRIVER(cuMemAlloc(&memory, 64));

    CUfunction f, g;
    DRIVER(cuModuleLoadData(&module, PTX));
    DRIVER(cuModuleGetFunction(&f, module, "bump"));
    DRIVER_EXPECT(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&g, module, "bum"));
    DRIVER_EXPECT(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&g, module, "counter"));
    works(f, 5);
    CUdeviceptr counter;
    size_t bytes;
    DRIVER(cuModuleGetGlobal(&counter, &bytes, module, "counter"));
    CHECK(bytes == 4);
    unsigned nine = 9;
    DRIVER(cuMemcpyHtoD(counter, &nine, 4));
    works(f, 9);
    DRIVER_EXPECT(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal(&counter, &bytes, module, "nothing"));
    unsigned count = 0;
    DRIVER(cuModuleGetFunctionCount(&count, module));
    CHECK(count == 1);

    CUlibrary library;
    CUkernel kernel, kernels[4];
    DRIVER(cuLibraryLoadData(&library, PTX, nullptr, nullptr, 0, nullptr, nullptr, 0));
    DRIVER(cuLibraryGetKernel(&kernel, library, "bump"));
    DRIVER(cuLibraryGetKernelCount(&count, library));
    CHECK(count == 1);
    DRIVER(cuLibraryEnumerateKernels(kernels, 1, library));
    CHECK(kernels[0] == kernel);
    const char *name = nullptr;
    DRIVER(cuKernelGetName(&name, kernel));
    CHECK(strcmp(name, "bump") == 0);
    DRIVER(cuKernelGetFunction(&g, kernel));
    works(g, 5); // its own variable
    works((CUfunction)kernel, 5);
    DRIVER(cuLibraryGetModule(&other, library));
    DRIVER(cuModuleGetFunction(&g, other, "bump"));
    DRIVER(cuLibraryGetGlobal(&counter, &bytes, library, "counter"));
    DRIVER(cuMemcpyHtoD(counter, &nine, 4));
    works(g, 9);
    int value = 0;
    DRIVER(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, device));
    CHECK(value == 1024);
    CUlibrary of;
    DRIVER(cuKernelGetLibrary(&of, kernel));
    CHECK(of == library);
    DRIVER(cuLibraryUnload(library));

    // what is no image
    char log[512] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)sizeof log};
    std::string broken(PTX);
    broken.replace(broken.find("%rd1, [at];"), 11, "%rd1, [at)");
    DRIVER_EXPECT(CUDA_ERROR_INVALID_PTX, cuModuleLoadDataEx(&other, broken.c_str(), 2, options, values));
    CHECK(strlen(log) > 0);
    DRIVER_EXPECT(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&other, "\x7f" "ELFgarbage that is no cubin and long enough to be looked at........."));
    CUresult empty = cuModuleLoadData(&other, "");
    CHECK(empty == CUDA_ERROR_INVALID_IMAGE || empty == CUDA_ERROR_INVALID_PTX);
    DRIVER_EXPECT(CUDA_ERROR_INVALID_VALUE, cuModuleLoadData(&other, nullptr));
    DRIVER_EXPECT(CUDA_ERROR_INVALID_VALUE, cuModuleLoadData(nullptr, PTX));
    DRIVER_EXPECT(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad(&other, "/nonexistent/file.ptx"));
    // freed handles
    DRIVER(cuModuleUnload(module));
    CHECK(cuModuleGetFunction(&g, module, "bump") == CUDA_ERROR_INVALID_HANDLE);
    CUstream stream;
    DRIVER(cuStreamCreate(&stream, 0));
    DRIVER(cuStreamDestroy(stream));
    DRIVER_EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(stream));
    DRIVER_EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery((CUstream)0x1234560));
    DRIVER_EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(nullptr, 0));
    DRIVER_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemGetInfo(nullptr, nullptr) == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);

    DRIVER(cuModuleLoadData(&module, PTX));
    DRIVER(cuModuleGetFunction(&f, module, "bump"));
    works(f, 5); // and all goes on
    puts("ok");
}
