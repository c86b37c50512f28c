#pragma once

#include "UnrealStubs.h"

class UTexture2D : public UObject {
public:
	static UTexture2D* CreateTransient(int32 Width, int32 Height, EPixelFormat) {
		UTexture2D* const Texture = NewObject<UTexture2D>();
		Texture->Width = Width;
		Texture->Height = Height;
		return Texture;
	}
	~UTexture2D() override {
		FTextureResource* const Gone = Resource;
		ENQUEUE_RENDER_COMMAND(Release)([Gone](FRHICommandListImmediate&) { delete Gone; });
	}
	void UpdateResource() {
		FTextureResource* const Made = Resource = new FTextureResource();
		const std::size_t Bytes = static_cast<std::size_t>(Width) * static_cast<std::size_t>(Height) * 4;
		ENQUEUE_RENDER_COMMAND(Make)([Made, Bytes](FRHICommandListImmediate&) {
			static_cast<std::shared_ptr<FRHITexture>&>(Made->TextureRHI) = std::make_shared<FRHITexture>();
			Made->TextureRHI->Pixels.resize(Bytes);
		});
	}
	FTextureResource* GetResource() { return Resource; }
	int32 GetSizeX() const { return Width; }
	int32 GetSizeY() const { return Height; }
	bool SRGB = false;
	int32 Width = 0, Height = 0;
	FTextureResource* Resource = nullptr; // the render thread's
};
