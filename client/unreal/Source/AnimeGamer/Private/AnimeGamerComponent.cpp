#include "AnimeGamerComponent.h"

#include "AnimeGamerSubsystem.h"
#include "Engine/GameInstance.h"
#include "Engine/World.h"

void UAnimeGamerComponent::BeginPlay()
{
	Super::BeginPlay();
	UGameInstance* const Instance = GetWorld()->GetGameInstance();
	UAnimeGamerSubsystem* const Subsystem = Instance != nullptr ? Instance->GetSubsystem<UAnimeGamerSubsystem>() : nullptr;
	Game = Subsystem != nullptr ? Subsystem->GetGame(GameName) : nullptr;
	if (Game == nullptr)
	{
		return;
	}
	Game->OnOffers.AddDynamic(this, &UAnimeGamerComponent::HandleOffers);
	Game->OnUnderstood.AddDynamic(this, &UAnimeGamerComponent::HandleUnderstood);
	Game->OnState.AddDynamic(this, &UAnimeGamerComponent::HandleState);
	Game->OnProgress.AddDynamic(this, &UAnimeGamerComponent::HandleProgress);
	Game->OnFrame.AddDynamic(this, &UAnimeGamerComponent::HandleFrame);
	Game->OnClipEnd.AddDynamic(this, &UAnimeGamerComponent::HandleClipEnd);
	Game->OnDone.AddDynamic(this, &UAnimeGamerComponent::HandleDone);
	Game->OnError.AddDynamic(this, &UAnimeGamerComponent::HandleError);
	if (Game->GetTexture() != nullptr) // a view that comes late has a picture at once
	{
		OnFrame.Broadcast(Game->GetTexture(), Game->GetShownTurn(), Game->GetShownIndex());
	}
}

void UAnimeGamerComponent::EndPlay(const EEndPlayReason::Type EndPlayReason)
{
	if (Game != nullptr)
	{
		Game->OnOffers.RemoveAll(this);
		Game->OnUnderstood.RemoveAll(this);
		Game->OnState.RemoveAll(this);
		Game->OnProgress.RemoveAll(this);
		Game->OnFrame.RemoveAll(this);
		Game->OnClipEnd.RemoveAll(this);
		Game->OnDone.RemoveAll(this);
		Game->OnError.RemoveAll(this);
		Game = nullptr;
	}
	Super::EndPlay(EndPlayReason);
}

bool UAnimeGamerComponent::Say(const FString& Instruction)
{
	return Game != nullptr && Game->Say(Instruction);
}

void UAnimeGamerComponent::Cancel()
{
	if (Game != nullptr)
	{
		Game->Cancel();
	}
}

void UAnimeGamerComponent::HandleOffers(const TArray<FString>& Instructions) { OnOffers.Broadcast(Instructions); }
void UAnimeGamerComponent::HandleUnderstood(const FAnimeGamerUnderstood& Understood) { OnUnderstood.Broadcast(Understood); }
void UAnimeGamerComponent::HandleState(const FAnimeGamerState& State) { OnState.Broadcast(State); }
void UAnimeGamerComponent::HandleProgress(float Fraction, float SecondsLeft) { OnProgress.Broadcast(Fraction, SecondsLeft); }
void UAnimeGamerComponent::HandleFrame(UTexture2D* Texture, int32 Turn, int32 Index) { OnFrame.Broadcast(Texture, Turn, Index); }
void UAnimeGamerComponent::HandleClipEnd(int32 Turn) { OnClipEnd.Broadcast(Turn); }
void UAnimeGamerComponent::HandleDone(int32 Turns, float Seconds) { OnDone.Broadcast(Turns, Seconds); }
void UAnimeGamerComponent::HandleError(const FString& Code, const FString& Text, const FString& WhatToDo)
{
	OnError.Broadcast(Code, Text, WhatToDo);
}
